from datetime import datetime, timezone
from typing import Any

import pytest

from roles.engine.desired import DesiredEngine, desired_engine
from roles.host.managed import Managed, ManagedFile
from roles.switch.decision import decide, decision_of, watch_reasons, watch_reasons_of
from tests.support.host_facts import facts_of
from tests.support.inventory_case import engine

LIVE = "a" * 64
RUNNING: dict[str, Any] = {
    "releases": {"current": LIVE},
    "state": {"phase": "live", "to": LIVE},
    "unit": {"ActiveState": "active", "UnitFileState": "enabled", "NeedDaemonReload": "no"},
}


def but(**parts: Any) -> dict[str, Any]:
    return {
        key: {**value, **parts[key]} if key in parts else value for key, value in RUNNING.items()
    }


def test_converged() -> None:
    assert not decide(RUNNING, LIVE, [], unit_differs=False).needed


def test_activating_is_not_restarted() -> None:
    starting = but(unit={"ActiveState": "activating"})
    assert not decide(starting, LIVE, [], unit_differs=False).needed


def test_a_changed_file_is_the_reason() -> None:
    assert decide(RUNNING, "b" * 64, ["nccl.env"], False).reasons == ("nccl.env changed",)


def test_bare_host() -> None:
    bare = {"releases": None, "state": None, "unit": None}
    assert decide(bare, LIVE, [], True).reasons == ("no release is live yet",)


def test_a_folder_that_was_deleted_beside_its_engine() -> None:
    runs = {"releases": {}, "state": None, "unit": {"ActiveState": "active"}}
    told = ("it runs, and its release is not recorded any more",)
    assert decide(runs, LIVE, [], True).reasons == told


def test_an_interrupted_switch_is_finished_even_if_all_looks_right() -> None:
    half = but(state={"phase": "switching"})
    assert decide(half, LIVE, [], False).reasons == ("an earlier switch was interrupted",)


def test_a_switch_that_runs_is_not_an_interrupted_one() -> None:
    half = but(state={"phase": "switching"})
    running = decide(half, LIVE, [], False, under_way=True)
    assert running.reasons == ("a switch of it is running",)


def test_stopped_disabled_edited_and_not_reloaded() -> None:
    stopped = but(unit={"ActiveState": "inactive", "UnitFileState": "disabled"})
    assert decide(stopped, LIVE, [], False).reasons == ("the unit is inactive",)
    # That alone needs no restart: see roles/switch/drift.py.
    assert not decide(but(unit={"UnitFileState": "disabled"}), LIVE, [], False).needed
    assert decide(RUNNING, LIVE, [], True).needed
    assert not decide(but(unit={"NeedDaemonReload": "yes"}), LIVE, [], False).needed


def test_an_edited_live_release_is_a_reason() -> None:
    assert decide(RUNNING, LIVE, ["nccl.env"], False).reasons == (
        "nccl.env of the live release was edited or is missing",
    )


WATCH = {"ActiveState": "active", "started": 1000.0}


def test_a_watch_that_reads_what_is_there_goes_on() -> None:
    assert watch_reasons(WATCH, True, {"chat.json": (False, 900.0)}) == []


def test_a_file_that_this_run_or_an_interrupted_one_changed_restarts_the_watch() -> None:
    assert watch_reasons(WATCH, True, {"chat.json": (True, 900.0)}) == ["chat.json changed"]
    assert watch_reasons(WATCH, True, {"chat.json": (False, 1001.0)}, now=2000.0) == [
        "chat.json is newer than its start"
    ]


def test_a_file_of_the_future_says_nothing() -> None:
    assert watch_reasons(WATCH, True, {"chat.json": (False, 5000.0)}, now=2000.0) == []


def test_a_dead_watch_is_started_but_not_before_there_is_an_engine() -> None:
    assert watch_reasons({"ActiveState": "failed"}, True, {}) == ["it is failed"]
    assert watch_reasons({"ActiveState": "inactive"}, False, {}) == []


def test_all_reasons_are_one_sentence() -> None:
    stopped = but(unit={"ActiveState": "inactive"}, state={"phase": "switching"})
    said = str(decide(stopped, LIVE, [], False))
    assert said == "an earlier switch was interrupted; the unit is inactive"


def test_who_stopped_it_is_told() -> None:
    stopped = {**but(unit={"ActiveState": "inactive"}), "last": {"stopped_by": "a person"}}
    assert "it was stopped by a person" in str(decide(stopped, LIVE, [], False))
    unknown = {**stopped, "unit": None}
    assert "it was" not in str(decide(unknown, LIVE, [], False))


def test_a_file_as_old_as_the_watch_was_read_by_it() -> None:
    for mtime, expected in ((1000.0, 0), (1000.1, 1), (2000.0, 1), (2000.1, 0)):
        reasons = watch_reasons(WATCH, True, {"chat.json": (False, mtime)}, now=2000.0)
        assert len(reasons) == expected, mtime


WANTED = desired_engine(engine())
WATCH_UNIT = ManagedFile("/etc/systemd/system/sglang-watch@.service", b"[Unit]\n")


def fact(item: Managed, **more: Any) -> dict[str, Any]:
    """What the probe says of a path that is as it should be."""
    said = {"kind": "file", "mode": item.mode, "owner": item.owner, "group": item.group, **more}
    return {**said, "sha256": item.sha256} if isinstance(item, ManagedFile) else said


def host(wanted: DesiredEngine, **more: Any) -> dict[str, Any]:
    """The probe's document of a host on which all is as it should be."""
    files = [*wanted.live_files.values(), *wanted.unit_files.values(), wanted.config, WATCH_UNIT]
    running = {
        **RUNNING,
        "releases": {"current": wanted.release.digest},
        "watch": {"ActiveState": "active", "started": 1767225600.0},
    }
    return {
        "time": "2026-01-01T00:01:00Z",
        "files": {item.path: fact(item, mtime=1767225500.0) for item in files},
        "engines": {wanted.name: {**running, **more}},
    }


def test_a_converged_host_needs_neither_switch_nor_restart() -> None:
    facts = host(WANTED)
    assert decision_of(WANTED)(facts).reasons == ()
    assert watch_reasons_of(WANTED, [WATCH_UNIT])(facts) == []


def test_an_edited_file_and_unit_are_found_on_the_host() -> None:
    facts = host(WANTED)
    facts["files"][f"{WANTED.spec.current}/nccl.env"]["sha256"] = "0" * 64
    assert decision_of(WANTED)(facts).reasons == (
        "nccl.env of the live release was edited or is missing",
    )
    facts = host(WANTED)
    facts["files"][WANTED.installed_unit({}).path]["sha256"] = "0" * 64
    (reason,) = decision_of(WANTED)(facts).reasons
    assert WANTED.installed_unit({}).path.rsplit("/", 1)[0] in reason


@pytest.mark.parametrize(
    ("lock", "said"),
    [
        ({"engine": WANTED.name}, "is running"),
        ({"engine": "other"}, "was interrupted"),
        (None, "was interrupted"),
    ],
)
def test_whose_switch_runs(lock: dict[str, str] | None, said: str) -> None:
    facts = {**host(WANTED, state={"phase": "switching"}), "lock": lock}
    (reason,) = decision_of(WANTED)(facts).reasons
    assert said in reason


def test_what_the_watch_reads_restarts_it() -> None:
    reasons_of = watch_reasons_of(WANTED, [WATCH_UNIT, ManagedFile("/etc/other", b"")])
    for item in (WATCH_UNIT, WANTED.config):
        name = item.path.rsplit("/", 1)[1]
        facts = host(WANTED)
        facts["files"][item.path]["sha256"] = "0" * 64
        assert reasons_of(facts) == [f"{name} changed"]
        # The probe's time is cut to the second: one more is still not the future.
        for second, reasons in ((61, [f"{name} is newer than its start"]), (62, [])):
            facts = host(WANTED)
            facts["files"][item.path]["mtime"] = 1767225600.0 + second
            assert reasons_of(facts) == reasons


def test_a_journal_that_is_gone_restarts_the_watch_of_an_engine_that_serves() -> None:
    reasons_of = watch_reasons_of(WANTED, [WATCH_UNIT])
    assert reasons_of(host(WANTED, last=None)) == ["the journal of this start is gone"]
    starts = {**RUNNING["unit"], "ActiveState": "activating"}
    assert reasons_of(host(WANTED, last=None, unit=starts)) == []
    assert reasons_of(host(WANTED, last={"start": "1-a"})) == []


def test_an_engine_without_a_release_or_a_watch() -> None:
    assert watch_reasons_of(WANTED, [WATCH_UNIT])(host(WANTED, releases=None, watch=None)) == []
    assert watch_reasons_of(WANTED, [WATCH_UNIT])(host(WANTED, watch=None)) == ["it is unknown"]


def test_a_start_that_is_owed_is_due() -> None:
    wanted = desired_engine(engine())
    facts = facts_of(wanted, state={"phase": "live", "owes": "its live release was written again"})
    assert "its live release was written again" in str(decision_of(wanted)(facts))


@pytest.mark.parametrize(
    ("written", "now", "due"),
    [(1000.0, 5000.0, False), (1900.0, 5000.0, False), (2100.0, 5000.0, True),
     (2100.0, 2050.0, False)],
    ids=["staged", "before the start", "after the start", "of the future"],
)  # fmt: skip
def test_a_file_that_somebody_wrote_after_the_start(written: float, now: float, due: bool) -> None:
    wanted = desired_engine(engine())
    unit = {"ActiveState": "active", "UnitFileState": "enabled", "started": 2000.0}
    facts = facts_of(wanted, unit=unit)
    facts["time"] = datetime.fromtimestamp(now - 1, timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")
    for item in wanted.live_files.values():
        facts["files"][item.path]["mtime"] = 1000.0
    path = wanted.live_files["engine.yaml"].path
    facts["files"][path]["mtime"] = written
    assert decision_of(wanted)(facts).needed == due
    if due:
        assert "engine.yaml was written after the engine's start" in str(decision_of(wanted)(facts))


def test_a_clock_that_was_set_back_restarts_nothing() -> None:
    """The whole release is younger than the start then."""
    wanted = desired_engine(engine())
    unit = {"ActiveState": "active", "UnitFileState": "enabled", "started": 2000.0}
    facts = facts_of(wanted, unit=unit)
    for item in wanted.live_files.values():
        facts["files"][item.path]["mtime"] = 3600.0
    assert not decision_of(wanted)(facts).needed
