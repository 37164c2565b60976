"""`sglangctl logs`: masked, escaped, across rotations."""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest

from sglangctl import cli
from sglangctl.commands import logs
from sglangctl.probe import engines
from sglangctl.state.paths import Paths
from tests.support.units import unit


@pytest.fixture
def log(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("SGLANGCTL_ROOT", str(tmp_path))
    file = Paths(tmp_path).engine_log("kimi")
    file.parent.mkdir(parents=True)
    return file


def release(log: Path, digest: str, secret: str) -> None:
    folder = Paths(log.parents[4]).releases("kimi") / digest
    folder.mkdir(parents=True)
    (folder / "engine.yaml").write_text(f'api-key: "{secret}"\nport: 30000\n')


def output(capsys: pytest.CaptureFixture[str], *argv: str) -> list[str]:
    assert cli.main(["logs", "kimi", *argv]) == 0
    return capsys.readouterr().out.splitlines()


def test_secrets_of_all_releases_are_masked(log: Path, capsys: pytest.CaptureFixture[str]) -> None:
    release(log, "old", "old-s3cret")
    release(log, "new", "new-s3cret")
    log.write_text("server_args=(api_key='old-s3cret')\n'new-s3cret' and n\x1b[1mew\n")
    assert output(capsys) == ["server_args=(api_key='***')", "'***' and new"]


def test_a_secret_split_by_colours_is_masked(log: Path, capsys: pytest.CaptureFixture[str]) -> None:
    release(log, "one", "planted-key")
    log.write_text("planted\x1b[0m-key\n")
    assert output(capsys) == ["***"]


def test_harmless_and_redrawn(log: Path, capsys: pytest.CaptureFixture[str]) -> None:
    log.write_bytes(
        b"\rLoading 1/3\rLoading 2/3\rLoading 3/3\n\x1b]0;t\x07\x07bell\xff\n\runfinished"
    )
    assert output(capsys) == ["Loading 3/3", "\\x07bell\\xff", "unfinished"]


def test_last_lines_reach_into_the_rotated_file(
    log: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    logs.rotated(log).write_text("".join(f"old {number}\n" for number in range(9)))
    log.write_text("new 0\nnew 1\n")
    assert output(capsys, "-n", "3") == ["old 8", "new 0", "new 1"]
    assert output(capsys, "-n", "1") == ["new 1"]
    assert output(capsys, "-n", "0") == []
    assert len(output(capsys)) == 11


def test_last_lines_of_a_large_file(log: Path, capsys: pytest.CaptureFixture[str]) -> None:
    log.write_text("".join(f"line {number}\n" for number in range(50_000)))
    assert output(capsys, "-n", "10000")[0] == "line 40000"


def test_no_log(log: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["logs", "kimi"]) == 2
    assert "was never started" in capsys.readouterr().err
    assert cli.main(["logs", "../x"]) == 2


def test_follows_across_rotations(log: Path) -> None:
    release(log, "one", "planted-key")
    log.write_text("before\n")
    process = subprocess.Popen(
        [sys.executable, "-m", "sglangctl", "logs", "kimi", "-f"],
        stdout=subprocess.PIPE,
        text=True,
    )

    def line() -> str:
        assert process.stdout is not None
        return process.stdout.readline()

    try:
        assert line() == "before\n"
        with open(log, "a") as engine:
            engine.write("planted-key\x1b[0m \x07 and a long line\n")
            engine.flush()
            assert line() == "*** \\x07 and a long line\n"
            os.truncate(log, 0)
            engine.write("\rbar 1\rbar 2\n")
            engine.flush()
            assert line() == "bar 1\n" and line() == "bar 2\n"
        os.rename(log, logs.rotated(log))
        log.write_text("another file\n")
        assert line() == "another file\n"
    finally:
        process.kill()
        process.wait()


def test_follows_a_log_that_is_not_there_yet(
    log: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def pause(seconds: float) -> None:
        if log.exists():
            raise KeyboardInterrupt
        log.write_text("first\n")

    monkeypatch.setattr(logs, "time", SimpleNamespace(sleep=pause))
    assert cli.main(["logs", "kimi", "-f"]) == 130
    assert capsys.readouterr().out == "first\n"


@pytest.mark.parametrize("hole", [64 << 30, 0])
def test_a_huge_line_or_hole_is_not_read_from_its_beginning(log: Path, hole: int) -> None:
    """The service user can do both to its own log."""
    release(log, "one", "planted-key")
    with open(log, "wb") as file:
        file.truncate(hole)
        file.seek(0, os.SEEK_END)
        for _ in range(0 if hole else 60):
            file.write(b"x" * (1 << 20))
        file.write(b"planted-key\nlast\n")
    done = subprocess.run(
        [sys.executable, "-m", "sglangctl", "logs", "kimi"], capture_output=True, timeout=20
    )
    assert done.returncode == 0
    lines = done.stdout.decode().splitlines()
    assert lines[-1] == "last"
    assert len(lines) == 2 and "bytes before this are left out" in lines[0]
    assert len(done.stdout) < 1 << 20


def test_a_long_line_is_shown_to_its_end(log: Path, capsys: pytest.CaptureFixture[str]) -> None:
    release(log, "one", "planted-key")
    log.write_bytes(b"x" * (1 << 20) + b" planted-key\nlast\n")
    first, last = output(capsys)
    assert last == "last" and first.endswith("xx ***") and first.startswith("[sglangctl: ")
    assert len(first) < 70_000


@pytest.fixture
def deleted(log: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The log of an engine that runs, deleted under it."""
    release(log, "live", "s3cret")
    with open(log, "w") as file:
        file.write("before\n")
        file.flush()
        running = subprocess.Popen([sys.executable, "-c", "input()"], stdin=-1, stdout=file)
    shutil.rmtree(log.parent)
    shown = unit(MainPID=str(running.pid))
    monkeypatch.setattr(logs, "find", lambda name: shown)
    yield log
    running.communicate(b"\n")


def test_a_deleted_log_is_shown_as_long_as_the_engine_writes_it(
    deleted: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(["logs", "kimi"]) == 0
    said = capsys.readouterr()
    assert said.out == "before\n"
    assert f"{deleted} was deleted" in said.err and "never started" not in said.err
    assert engines.log_deleted(logs.find("kimi"), "kimi", Paths(deleted.parents[4]))
    deleted.parent.mkdir()
    deleted.touch()  # somebody's new file is not what the engine writes
    assert cli.main(["logs", "kimi"]) == 0
    assert capsys.readouterr().out == "before\n"


def test_a_deleted_log_is_followed(
    deleted: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its name is a link, of /proc, which is not followed otherwise: nothing more was shown."""

    class Enough(Exception): ...

    output, waits = Path(f"/proc/{logs.find('kimi').main_pid}/fd/1"), 0

    def wait(_: float) -> None:
        nonlocal waits
        waits += 1
        if waits > 1:
            raise Enough
        with output.open("a") as file:
            file.write("after\n")

    monkeypatch.setattr(logs, "time", SimpleNamespace(sleep=wait))
    with pytest.raises(Enough):
        logs.run(argparse.Namespace(name="kimi", follow=True, lines=10))
    assert capsys.readouterr().out.splitlines() == ["before", "after"]


def test_a_log_that_is_gone_is_not_called_one_that_never_was(
    log: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    paths = Paths(log.parents[4])
    monkeypatch.setattr(logs, "find", lambda name: None)
    assert cli.main(["logs", "kimi"]) == 2
    assert "never started" in capsys.readouterr().err
    start = paths.starts("kimi") / "20261130T120000.000Z-aa"
    start.mkdir(parents=True)
    (start / "journal.jsonl").touch()
    assert cli.main(["logs", "kimi"]) == 2
    said = capsys.readouterr().err
    assert "it was deleted" in said and "never started" not in said
