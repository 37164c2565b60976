"""Long commands of the set-up: a sign of life, the end of the log on failure, nothing left running."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from tests.hosts import say


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(say, "CACHE", tmp_path)
    return tmp_path


def test_a_slow_command_shows_its_last_line(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(say, "HEARTBEAT_S", 0.1)
    code = "import time; print('step 1 of 2\\rWARNING: x\\r', end='', flush=True); time.sleep(0.6)"
    say.run([sys.executable, "-c", code], "Doing it")
    shown = capsys.readouterr().out
    assert shown.startswith("==> Doing it\n") and "s  step 1 of 2\n" in shown


def test_a_failure_shows_the_end_of_the_log_without_control_characters(cache: Path) -> None:
    code = "import sys; print('\\x1b[31mno space left'); sys.exit(3)"
    with pytest.raises(say.Failure) as caught:
        say.run([sys.executable, "-c", code], "Filling the disk")
    assert "exit status 3" in str(caught.value) and "[31mno space left" in str(caught.value)
    assert "\x1b" not in str(caught.value)
    assert "no space left" in (cache / "logs/filling-the-disk.log").read_text()


def test_a_command_without_end_is_ended(tmp_path: Path) -> None:
    with pytest.raises(say.Failure, match="no end after 1 s"):
        say.run(["sleep", "60"], "Waiting", timeout=1)


def test_a_short_commands_error_is_the_failure() -> None:
    with pytest.raises(say.Failure, match="no-such-file"):
        say.output(["ls", "/no-such-file"])
