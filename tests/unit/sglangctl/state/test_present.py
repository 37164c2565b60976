"""Which start's journal belongs to what the unit does now."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from sglangctl.state import present
from sglangctl.state.paths import Paths
from sglangctl.state.present import Present
from sglangctl.systemd import systemctl as systemd

SHOWN = """\
Result=success
NRestarts=2
ActiveState=activating
SubState=start-post
Job=4711
InvocationID=295b636163334fe3a4bd3798fd0a69d9

ActiveState=active
SubState=running
Result=success
InvocationID=55c14af8ceb840e293e952959c529461
NRestarts=0
Job=
"""
RUNNING = Present("active", "running", "success", "bb", 0, False, "active")


@pytest.fixture
def paths(tmp_path: Path) -> Paths:
    paths = Paths(tmp_path)
    for start in ("1-aa", "2-bb", "3-cc"):
        (paths.starts("kimi") / start).mkdir(parents=True)
        (paths.starts("kimi") / start / "journal.jsonl").touch()
    return paths


def test_read_from_systemctl(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []

    def systemctl(*argv: str) -> systemd.Result:
        asked.extend(argv)
        return systemd.Result(0, SHOWN, "")

    monkeypatch.setattr(systemd, "systemctl", systemctl)
    found = present.present("kimi", "sglang-kimi.service")
    assert asked[-3:] == ["--", "sglang-kimi.service", "sglang-watch@kimi.service"]
    assert found == Present(
        active="activating",
        sub="start-post",
        result="success",
        invocation_id="295b636163334fe3a4bd3798fd0a69d9",
        restarts=2,
        job=True,
        watch="active",
    )


@pytest.mark.parametrize(
    "result", [systemd.Result(None, "", "no such file"), systemd.Result(1, "", "not booted")]
)
def test_without_systemd(monkeypatch: pytest.MonkeyPatch, result: systemd.Result) -> None:
    monkeypatch.setattr(systemd, "systemctl", lambda *argv: result)
    assert present.present("kimi", "sglang-kimi.service") is None


@pytest.mark.parametrize(
    ("unit", "start"),
    [
        (None, "3-cc"),
        (RUNNING, "2-bb"),
        (replace(RUNNING, active="activating", job=True), "2-bb"),
        # A restart is queued: the run that is still there is not the one that was asked for.
        (replace(RUNNING, job=True), None),
        (replace(RUNNING, active="deactivating", job=True), None),
        (replace(RUNNING, active="inactive", job=True), None),
        (replace(RUNNING, active="failed"), "2-bb"),
        # Just started: the watch has no folder for it yet.
        (replace(RUNNING, invocation_id="dd"), None),
        # systemd has forgotten the unit's last run.
        (replace(RUNNING, active="inactive", invocation_id=""), "3-cc"),
        (replace(RUNNING, active="inactive", invocation_id="", job=True), None),
    ],
)
def test_the_start_that_the_unit_is_in(paths: Paths, unit: Present | None, start: str) -> None:
    assert present.start_of("kimi", unit, paths) == start


@pytest.mark.parametrize(
    ("unit", "start"),
    [
        (replace(RUNNING, active="deactivating", job=True), "2-bb"),
        (replace(RUNNING, job=True), "2-bb"),
        (replace(RUNNING, active="inactive", job=True), None),
        (replace(RUNNING, active="activating", job=True), "2-bb"),
        (replace(RUNNING, active="activating", sub="auto-restart", invocation_id="dd"), None),
    ],
)
def test_the_start_to_tell_of(paths: Paths, unit: Present, start: str | None) -> None:
    assert present.shown_start("kimi", unit, paths) == start


@pytest.mark.parametrize(
    ("code", "status", "exited", "expected"),
    [("1", "203", "77", 203), ("2", "9", "77", -9), ("1", "0", "77", 0), ("0", "0", "0", None)],
)
def test_how_the_main_process_ended(
    monkeypatch: pytest.MonkeyPatch, code: str, status: str, exited: str, expected: int | None
) -> None:
    shown = (
        f"ExecMainPID=7\nExecMainCode={code}\nExecMainStatus={status}\n"
        f"ExecMainExitTimestampMonotonic={exited}\n{SHOWN}"
    )
    monkeypatch.setattr(systemd, "systemctl", lambda *argv: systemd.Result(0, shown, ""))
    found = present.present("kimi", "sglang-kimi.service")
    assert found is not None and found.exit_status == expected


def test_down_is_neither_running_nor_about_to() -> None:
    assert replace(RUNNING, active="failed").down and replace(RUNNING, active="inactive").down
    assert not RUNNING.down and not replace(RUNNING, active="failed", job=True).down
    assert not replace(RUNNING, active="activating").down
