from typing import Any

from roles.switch.decision import decide, watch_reasons

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


def test_an_interrupted_switch_is_finished_even_if_all_looks_right() -> None:
    half = but(state={"phase": "switching"})
    assert decide(half, LIVE, [], False).reasons == ("an earlier switch did not come to its end",)


def test_a_switch_that_runs_is_not_an_interrupted_one() -> None:
    half = but(state={"phase": "switching"})
    running = decide(half, LIVE, [], False, under_way=True)
    assert running.reasons == ("a switch of it is under way",)


def test_stopped_disabled_edited_and_not_reloaded() -> None:
    stopped = but(unit={"ActiveState": "inactive", "UnitFileState": "disabled"})
    assert decide(stopped, LIVE, [], False).reasons == (
        "the unit is inactive",
        "the unit does not start at boot",
    )
    assert decide(RUNNING, LIVE, [], True).needed
    assert decide(but(unit={"NeedDaemonReload": "yes"}), LIVE, [], False).needed


def test_an_edited_live_release_is_a_reason() -> None:
    assert decide(RUNNING, LIVE, ["nccl.env"], False).reasons == (
        "nccl.env of the live release was edited",
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
