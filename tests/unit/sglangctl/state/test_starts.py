"""Start folders and the reading of journals from their end."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from sglangctl.state import starts
from sglangctl.state.paths import Paths
from sglangctl.systemd.unit import Unit
from sglangctl.util.errors import Unusable
from tests.support.units import unit


def journal_of(root: Path, start: str, *events: dict[str, object], tail: bytes = b"") -> Path:
    folder = Paths(root).starts("kimi") / start
    folder.mkdir(parents=True)
    file = folder / "journal.jsonl"
    file.write_bytes(b"".join(json.dumps(event).encode() + b"\n" for event in events) + tail)
    return file


def test_order_and_successors(tmp_path: Path) -> None:
    paths = Paths(tmp_path)
    for start in ("20261129T101500Z-bb", "20261129T101000Z-aa", "20261130T000000Z-cc"):
        journal_of(tmp_path, start)
    (paths.starts("kimi") / "latest").symlink_to("20261130T000000Z-cc")
    (paths.starts("kimi") / "no-journal-yet").mkdir()
    assert starts.latest("kimi", paths) == "20261130T000000Z-cc"
    assert starts.after("kimi", "20261129T101000Z-aa", paths) == "20261129T101500Z-bb"
    assert starts.after("kimi", "20261130T000000Z-cc", paths) is None
    assert starts.of_invocation("kimi", "bb", paths) == "20261129T101500Z-bb"
    assert starts.of_invocation("kimi", "b", paths) is None
    assert starts.of_invocation("kimi", "", paths) is None
    assert starts.latest("other", paths) is None


def test_the_newest_start_after_the_clock_was_put_back(tmp_path: Path) -> None:
    paths = Paths(tmp_path)
    folder = paths.starts("kimi")
    for start in ("20261129T101000Z-aa", "20261129T101500Z-bb", "20200101T000000Z-cc"):
        journal_of(tmp_path, start)
    (folder / "latest").symlink_to("20200101T000000Z-cc")
    in_order = ["20261129T101000Z-aa", "20261129T101500Z-bb", "20200101T000000Z-cc"]
    assert starts.names(folder) == in_order
    assert starts.latest("kimi", paths) == "20200101T000000Z-cc"
    assert starts.after("kimi", "20261129T101500Z-bb", paths) == "20200101T000000Z-cc"
    assert starts.after("kimi", "20200101T000000Z-cc", paths) is None
    assert starts.after("kimi", "20261129T101200Z-gone", paths) == "20261129T101500Z-bb"
    # The start that it names may be gone: then by name.
    (folder / "latest").unlink()
    (folder / "latest").symlink_to("20210101T000000Z-gone")
    assert starts.latest("kimi", paths) == "20261129T101500Z-bb"


@pytest.mark.parametrize("name", ["..", "../x", "a/b", "", "latest", "a\nb", "-x", "x" * 200])
def test_a_start_is_not_a_path(name: str) -> None:
    with pytest.raises(Unusable, match="not the name of a start"):
        starts.checked_folder(name)


@pytest.mark.parametrize("block", [1, 2, 3, 7, 64, 1 << 16])
@pytest.mark.parametrize(
    "data", [b"", b"\n", b"a", b"a\n", b"a\nb", b"a\nb\n", b"\n\na\n\n", b"long line\n" * 9 + b"x"]
)
def test_lines_backwards(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, data: bytes, block: int
) -> None:
    monkeypatch.setattr(starts, "BLOCK", block)
    file = tmp_path / "file"
    file.write_bytes(data)
    complete = data[: data.rfind(b"\n") + 1]
    expected = [line.rstrip(b"\n") for line in complete.splitlines(keepends=True)]
    assert list(starts.lines_backwards(file)) == expected[::-1]


def test_last_verdict_and_event(tmp_path: Path) -> None:
    file = journal_of(
        tmp_path,
        "s",
        {"t": 0, "kind": "launch"},
        {"t": 1, "kind": "verdict", "outcome": "pending"},
        {"t": 2, "kind": "verdict", "outcome": "ready"},
        {"t": 3, "kind": "log", "data": 'says "verdict" itself'},
        tail=b'{"t": 4, "kind": "verdict", "outcome": "fai',
    )
    verdict = starts.last_verdict(file)
    assert verdict is not None and verdict["t"] == 2
    assert starts.outcome_of(verdict) == "ready"
    last = starts.last_event(file)
    assert last is not None and last["t"] == 3
    launch = starts.last_event(file, "launch")
    assert launch is not None and launch["t"] == 0


@pytest.mark.parametrize("outcome", [None, 7, "two words", "x\ny", "", "A"])
def test_an_outcome_is_one_word(outcome: object) -> None:
    assert starts.outcome_of({"outcome": outcome}) == "-"


@pytest.fixture
def three(tmp_path: Path) -> Paths:
    for start in ("1-aa", "2-bb", "3-cc"):
        journal_of(tmp_path, start)
    return Paths(tmp_path)


@pytest.mark.parametrize(
    ("seen", "start"),
    [
        (None, "3-cc"),
        (unit(invocation_id="bb"), "2-bb"),
        (unit("activating", invocation_id="bb", job=True), "2-bb"),
        # A restart is queued: the run that is still there is not the one that was asked for.
        (unit(invocation_id="bb", job=True), None),
        (unit("deactivating", invocation_id="bb", job=True), None),
        (unit("inactive", invocation_id="bb", job=True), None),
        (unit("failed", invocation_id="bb"), "2-bb"),
        # Just started: the watch has no folder for it yet.
        (unit(invocation_id="dd"), None),
        # systemd has forgotten the unit's last run.
        (unit("inactive", invocation_id=""), "3-cc"),
        (unit("inactive", invocation_id="", job=True), None),
    ],
)
def test_the_start_that_the_unit_is_in(three: Paths, seen: Unit | None, start: str) -> None:
    assert starts.of_unit("kimi", seen, three) == start


@pytest.mark.parametrize(
    ("seen", "start"),
    [
        (unit("deactivating", invocation_id="bb", job=True), "2-bb"),
        (unit(invocation_id="bb", job=True), "2-bb"),
        (unit("inactive", invocation_id="bb", job=True), None),
        (unit("activating", invocation_id="bb", job=True), "2-bb"),
        (unit("activating", "auto-restart", invocation_id="dd"), None),
    ],
)
def test_the_start_to_tell_of(three: Paths, seen: Unit, start: str | None) -> None:
    assert starts.to_tell_of("kimi", seen, three) == start
