"""A host on which nothing is to be done gets one operation, and any other host all of them."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any, cast

import pytest
from pyinfra.api import State, StringCommand, deploy
from pyinfra.api.operations import run_ops
from pyinfra.api.state import StateStage

from roles.remote import failing, look
from roles.remote.operation import Commands, operation, planned, show, will_fail
from roles.stages import unchanged
from roles.stages.desired import DesiredHost
from tests.hosts.say import ROOT
from tests.support.on_this_machine import deploying

DESIRED = cast("DesiredHost", SimpleNamespace(engines=(SimpleNamespace(name="chat"),)))


@operation()
def quiet(value: str, sudo: bool = False) -> Commands:
    """It has something to tell and nothing to do."""
    show([f"note: {value}", *planned(["only in a plan"])])
    yield from ()


@operation()
def busy() -> Commands:
    """It has something to do."""
    show(["true: to be run"])
    yield StringCommand("true")


@operation()
def doomed() -> Commands:
    """It will fail."""
    yield will_fail("no")


@operation()
def broken() -> Commands:
    """It has a defect."""
    raise KeyError("x")
    yield from ()


def stage(*operations: Callable[[], Any]) -> Any:
    @failing.contained
    @deploy("Stage")
    def calls(desired: DesiredHost) -> None:
        for one in operations:
            one()

    return calls


def tells() -> None:
    quiet(name="chat: quiet", value="logs grow", sudo=True)


def defect() -> None:
    raise KeyError("y")


@pytest.fixture
def state(monkeypatch: pytest.MonkeyPatch) -> Iterator[State]:
    monkeypatch.setattr(failing, "MESSAGES", {})
    monkeypatch.setattr(failing, "FORESEEN", {})
    with deploying() as made:
        made.set_stage(StateStage.Prepare)
        yield made


def names(state: State) -> list[str]:
    return [name for one in state.get_op_order() for name in state.get_op_meta(one).names]


def test_nothing_to_do_is_one_operation_and_what_the_others_tell(
    state: State, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(unchanged, "STAGES", (stage(tells), stage(tells)))
    shown: list[str] = []
    monkeypatch.setattr(unchanged, "show_now", shown.extend)
    assert unchanged.nothing_to_do(DESIRED) is True
    assert names(state) == ["nothing to do"]
    assert shown == ["note: logs grow"] * 2
    state.set_stage(StateStage.Execute)
    run_ops(state)
    assert not state.failed_hosts


@pytest.mark.parametrize("one", [busy, doomed, broken, defect])
def test_otherwise_the_operations_do_and_tell_it_themselves(
    state: State, monkeypatch: pytest.MonkeyPatch, one: Callable[[], Any]
) -> None:
    late = stage(lambda: pytest.fail("looked at what is of no use any more"))
    monkeypatch.setattr(unchanged, "STAGES", (stage(tells, one), late))
    monkeypatch.setattr(unchanged, "show_now", lambda lines: pytest.fail("said too early"))
    assert unchanged.nothing_to_do(DESIRED) is False
    assert names(state) == [] and not failing.MESSAGES and not failing.FORESEEN
    assert look.current() is None  # the next operation goes to pyinfra
    busy(name="next")
    assert names(state) == ["next"]


def test_a_plan_has_every_operation(state: State, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(unchanged, "STAGES", (stage(tells),))
    state.check_for_changes = True
    assert unchanged.nothing_to_do(DESIRED) is False


def test_every_operation_of_the_deploy_is_asked() -> None:
    """roll_out is two of these stages, and an operation that waits for another host."""
    called = re.findall(r"^        (\w+)\(host\)$", (ROOT / "deploys/sglang.py").read_text(), re.M)
    asked = [one.__name__ for one in unchanged.STAGES]
    rolled = ["switch_engines", "wait_until_serving"]
    assert asked == [name for one in called for name in (rolled if one == "roll_out" else [one])]
