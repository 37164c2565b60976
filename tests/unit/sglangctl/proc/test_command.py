"""Other programs: their time, their output, and those that cannot be ended."""

from __future__ import annotations

import subprocess
import sys
import time

import pytest

from sglangctl.proc import command


def python(code: str, timeout_s: float = 30.0) -> command.Result:
    return command.run([sys.executable, "-I", "-S", "-c", code], timeout_s)


def test_both_streams_and_the_status() -> None:
    """More than a pipe holds on each, one after the other."""
    code = "import sys; sys.stdout.write('o' * 300000); sys.stderr.write('e' * 300000); sys.exit(3)"
    assert python(code) == command.Result(3, "o" * 300000, "e" * 300000)


def test_nothing_is_coloured_or_translated() -> None:
    """systemd 247 looks at SYSTEMD_LOG_COLOR for its own complaints, and not at SYSTEMD_COLORS."""
    names = ("LC_ALL", "SYSTEMD_COLORS", "SYSTEMD_LOG_COLOR")
    said = python(f"import os; print(*map(os.environ.get, {names}))").stdout
    assert said.split() == ["C.UTF-8", "0", "0"]


def test_bytes_that_are_no_text() -> None:
    assert python(r"import os; os.write(1, b'a\xff')").stdout == "a\\xff"


def test_what_cannot_be_run() -> None:
    found = command.run(["/nowhere/at-all"])
    assert found.status is None and "/nowhere/at-all" in found.stderr


@pytest.mark.parametrize(
    "code", ["import time; time.sleep(60)", "import os\nwhile 1: os.write(2, b'.')"]
)
def test_out_of_time(code: str) -> None:
    began = time.monotonic()
    found = python(code, 0.3)
    assert found.status is None and "did not answer within 0.3 s" in found.stderr
    assert time.monotonic() - began < 10


def test_output_closed_and_no_end() -> None:
    found = python("import os, time; os.close(1); os.close(2); time.sleep(60)", 0.5)
    assert found.status is None and "did not answer" in found.stderr


def test_output_without_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(command, "MOST_BYTES", 1 << 20)
    found = python("import os\nwhile 1: os.write(1, b'x' * 65536)")
    assert found.status is None and "printed more than 1 MiB" in found.stderr


def test_one_that_no_signal_ends_is_left_behind(monkeypatch: pytest.MonkeyPatch) -> None:
    """A program that waits in the kernel: as a process that is not killed."""
    monkeypatch.setattr(command, "KILLED_S", 0.1)
    left: list[subprocess.Popen[bytes]] = []
    monkeypatch.setattr(subprocess.Popen, "kill", lambda self: left.append(self))
    began = time.monotonic()
    found = python("import time; time.sleep(60)", 0.2)
    assert "it was killed, and waits in the kernel" in found.stderr
    assert time.monotonic() - began < 10
    monkeypatch.undo()
    (process,) = left
    process.kill()
    process.wait()
