"""`sglangctl journal`: the long poll loses nothing and repeats nothing."""

from __future__ import annotations

import json
import random
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from sglangctl import cli
from sglangctl.state import follow
from sglangctl.state.journal import Writer
from sglangctl.state.paths import Paths


def writer(root: Path, start: str = "20261129T101000Z-aa") -> Writer:
    folder = Paths(root).starts("kimi") / start
    folder.mkdir(parents=True, exist_ok=True)
    return Writer(folder / "journal.jsonl")


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("SGLANGCTL_ROOT", str(tmp_path))
    return tmp_path


def call(capsys: pytest.CaptureFixture[str], *argv: str) -> tuple[int, list[str], str]:
    status = cli.main(["journal", *argv])
    out, err = capsys.readouterr()
    return status, out.splitlines(), err


def poll(
    name: str, start: str | None, offset: int, paths: Paths, wait_s: float = 0
) -> follow.Answer:
    return follow.poll(lambda: follow.look_at_start(name, start, offset, paths), wait_s)


def test_poll_prints_from_the_offset_and_says_where_to_go_on(
    root: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    journal = writer(root)
    journal.write(0, "launch", v=1)
    status, first, _ = call(capsys, "kimi", "--from", "0")
    assert status == 0 and json.loads(first[0])["kind"] == "launch"
    mark, start, offset, outcome = first[-1].split()
    assert (mark, start, outcome) == ("@", "20261129T101000Z-aa", "-")
    journal.write(1, "verdict", outcome="pending")
    _, second, _ = call(capsys, "kimi", "--from", offset, "--start", start)
    assert [json.loads(line)["t"] for line in second[:-1]] == [1]
    assert second[-1] == f"@ {start} {journal.bytes} pending"
    _, third, _ = call(capsys, "kimi", "--from", str(journal.bytes), "--start", start)
    assert third == [f"@ {start} {journal.bytes} pending"]


def test_a_line_without_its_newline_waits(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    journal = writer(root)
    journal.write(0, "launch")
    with open(journal.path, "ab") as file:
        file.write(b'{"t": 1, "kind": "lo')
        file.flush()
        _, lines, _ = call(capsys, "kimi", "--from", "0")
        assert len(lines) == 2
        start, offset = lines[-1].split()[1:3]
        file.write(b'g", "data": "x"}\n')
    _, lines, _ = call(capsys, "kimi", "--from", offset, "--start", start)
    assert json.loads(lines[0]) == {"t": 1, "kind": "log", "data": "x"}


def test_poll_answers_as_soon_as_there_is_a_line(root: Path) -> None:
    journal = writer(root)
    threading.Timer(0.3, lambda: journal.write(0, "launch")).start()
    began = time.monotonic()
    reply = poll("kimi", None, 0, Paths(root), 30)
    assert len(reply.lines) == 1
    assert 0.2 < time.monotonic() - began < 5


def test_poll_waits_no_longer_than_told(root: Path) -> None:
    began = time.monotonic()
    reply = poll("kimi", None, 0, Paths(root), 0.5)
    assert reply.position == "@ - 0 -"
    assert 0.5 <= time.monotonic() - began < 2.5


def test_a_restart_is_followed_start_by_start(root: Path) -> None:
    paths = Paths(root)
    for start in ("1-a", "2-b", "3-c"):
        writer(root, start).write(0, "launch", start=start)
    seen: list[str] = []
    start: str | None = "1-a"
    offset = 0
    for _ in range(8):
        reply = poll("kimi", start, offset, paths)
        start, offset = reply.source, reply.offset
        seen += [json.loads(line)["start"] for line in reply.lines]
    assert seen == ["1-a", "2-b", "3-c"]


def test_a_start_that_was_tidied_away_gives_its_place_to_the_next(root: Path) -> None:
    writer(root, "2-b").write(0, "launch", start="2-b")
    reply = poll("kimi", "1-a", 4711, Paths(root), 0)
    assert reply.source == "2-b" and len(reply.lines) == 1
    with pytest.raises(FileNotFoundError):
        poll("kimi", "3-c", 0, Paths(root), 0)


def test_random_writes_arrive_once_and_in_order(root: Path) -> None:
    """Chunks cut anywhere, polls at any time, small replies: the same bytes come out."""
    chance = random.Random(4)
    journal = writer(root)
    expected = [f"{number} {'x' * chance.randrange(40)}".encode() for number in range(300)]
    data = b"".join(line + b"\n" for line in expected)
    seen: list[bytes] = []
    start, offset = None, 0
    old, follow.MAX_BYTES = follow.MAX_BYTES, 64
    try:
        with open(journal.path, "ab", buffering=0) as file:
            while data or len(seen) < len(expected):
                size = chance.randrange(200)
                file.write(data[:size])
                data = data[size:]
                reply = poll("kimi", start, offset, Paths(root), 0)
                start, offset = reply.source, reply.offset
                seen += reply.lines
    finally:
        follow.MAX_BYTES = old
    assert seen == expected


def test_one_line_longer_than_a_reply(root: Path) -> None:
    journal = writer(root)
    journal.write(0, "log", data="x" * (2 * follow.MAX_BYTES))
    journal.write(1, "log", data="y")
    first = poll("kimi", None, 0, Paths(root), 0)
    assert json.loads(first.lines[0])["data"].startswith("xxx")


@pytest.mark.parametrize(
    "argv",
    [
        ("../etc",),
        ("kimi", "--from", "5"),
        ("kimi", "--from", "-1"),
        ("kimi", "--start", "../../etc", "--from", "0"),
        ("kimi", "--start", "20261129T101000Z-aa", "--from", "999"),
        ("kimi", "--start", "nothing-there"),
        ("other",),
    ],
)
def test_what_cannot_be_read_is_said(
    root: Path, capsys: pytest.CaptureFixture[str], argv: tuple[str, ...]
) -> None:
    writer(root).write(0, "launch")
    status, lines, error = call(capsys, *argv)
    assert status == 2 and lines == []
    assert error.startswith("sglangctl journal: ") and error.count("\n") == 1


def test_lines_and_list_and_harmless(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    journal = writer(root)
    for t in range(5):
        journal.write(t, "log", data="\x1b]0;title\x07")
    journal.write(5, "verdict", outcome="failed", cause="port-taken")
    with open(journal.path, "ab") as file:
        file.write(b"\x1b[31mnot json \xff\n")
    _, lines, _ = call(capsys, "kimi", "-n", "3")
    assert [line[:5] for line in lines] == ['{"t":', '{"t":', "\\x1b["]
    assert not any("\x1b" in line for line in lines)
    _, lines, _ = call(capsys, "kimi")
    assert len(lines) == 7
    _, lines, _ = call(capsys, "kimi", "--list")
    assert lines == ["20261129T101000Z-aa failed port-taken"]


def test_follow_goes_on_into_the_next_start(root: Path) -> None:
    writer(root, "1-a").write(0, "launch", start="one")
    process = subprocess.Popen(
        [sys.executable, "-m", "sglangctl", "journal", "kimi", "-f"],
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        assert process.stdout is not None
        assert '"one"' in process.stdout.readline()
        writer(root, "2-b").write(0, "launch", start="two")
        assert '"two"' in process.stdout.readline()
    finally:
        process.kill()
        process.wait()
