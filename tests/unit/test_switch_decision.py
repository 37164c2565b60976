from typing import Any

from roles.switch.decision import decide

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


def test_stopped_disabled_edited_and_not_reloaded() -> None:
    stopped = but(unit={"ActiveState": "inactive", "UnitFileState": "disabled"})
    assert decide(stopped, LIVE, [], False).reasons == (
        "the unit is inactive",
        "the unit does not start at boot",
    )
    assert decide(RUNNING, LIVE, [], True).needed
    assert decide(but(unit={"NeedDaemonReload": "yes"}), LIVE, [], False).needed
