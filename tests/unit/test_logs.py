"""`sglangctl logs`: masked, harmless, across rotations."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from sglangctl import cli, logs
from sglangctl.paths import Paths


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


def test_follow_sees_each_line_once_across_copytruncate(log: Path) -> None:
    log.write_text("before\n")
    tail = logs.Tail(log)
    with open(log, "ab", buffering=0) as engine:
        engine.write(b"one\ntw")
        assert list(tail.read()) == [b"one"]
        engine.write(b"o\nthree\n")
        logs.rotated(log).write_bytes(log.read_bytes())
        os.truncate(log, 0)
        engine.write(b"four\n\rbar 1\rbar 2")
        assert list(tail.read()) == [b"two", b"three", b"four", b"bar 1"]
        engine.write(b"\n")
        assert list(tail.read()) == [b"bar 2"]


def test_follow_sees_a_replaced_and_a_late_file(log: Path) -> None:
    tail = logs.Tail(log)
    assert list(tail.read()) == []
    log.write_text("first\n")
    assert list(tail.read()) == [b"first"]
    os.rename(log, logs.rotated(log))
    log.write_text("second, longer than the first\n")
    assert list(tail.read()) == [b"second, longer than the first"]


def test_a_line_without_end_does_not_fill_the_memory(log: Path) -> None:
    log.touch()
    tail = logs.Tail(log)
    log.write_bytes(b"x" * (3 * logs.LONGEST + 5))
    pieces = list(tail.read())
    assert sum(map(len, pieces)) >= 2 * logs.LONGEST and max(map(len, pieces)) <= 2 * logs.LONGEST


def test_no_log(log: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["logs", "kimi"]) == 2
    assert "was never started" in capsys.readouterr().err
    assert cli.main(["logs", "../x"]) == 2


def test_command_follows(log: Path) -> None:
    log.write_text("before\n")
    process = subprocess.Popen(
        [sys.executable, "-m", "sglangctl", "logs", "kimi", "-f"],
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        assert process.stdout is not None
        assert process.stdout.readline() == "before\n"
        with open(log, "a") as engine:
            engine.write("after\n")
        assert process.stdout.readline() == "after\n"
    finally:
        process.kill()
        process.wait()
