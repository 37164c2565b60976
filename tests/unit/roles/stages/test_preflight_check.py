"""A deploy that cannot come to its end is not begun, and an engine that could not start again is
named while it still serves."""

from __future__ import annotations

from typing import Any, cast

import pytest

from roles.stages import preflight_check
from roles.stages.desired import DesiredHost
from roles.switch.decision import Decision
from tests.support.blocked_host import FOUND, IN_THE_WAY, facts, whole_engine

NEEDED, IDLE = Decision(("no release is live yet",)), Decision(())


class Said:
    """What the stage printed, and why it failed the host."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.failed: list[str] = []


@pytest.fixture
def said() -> Said:
    return Said()


@pytest.fixture
def run(said: Said, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Run the stage: (plan or -y, decision, facts of the host) -> the failure's text or None."""

    def preflight(plan: bool, decision: Decision, body: str = "", **more: Any) -> str | None:
        engine = whole_engine(body)
        state = type("State", (), {"check_for_changes": plan, "inventory": Inventory()})
        monkeypatch.setattr(preflight_check, "state", state)
        monkeypatch.setattr(preflight_check, "host", type("Here", (), {"name": "h"}))
        monkeypatch.setattr(preflight_check, "decision_of", lambda _: lambda _: decision)
        monkeypatch.setattr(preflight_check, "fail_host", said.failed.append)
        monkeypatch.setattr(preflight_check, "say", lambda _, text, fg: said.lines.append(text))
        known = facts(**{"program_runs": True, **more})
        host = type("Host", (), {"engines": (engine,), "facts": lambda _: known})()
        preflight_check.preflight(cast("DesiredHost", host))
        return said.failed[0] if said.failed else None

    class Inventory:
        def get_host(self, name: str) -> str:
            return name

    return preflight


@pytest.mark.parametrize("plan", [True, False])
@pytest.mark.parametrize("decision", [NEEDED, IDLE])
def test_without_a_plan_nothing_is_begun_that_cannot_end(
    plan: bool, decision: Decision, run: Any
) -> None:
    kernels = {"e": {"python": None}}
    quiet = [] if decision is IDLE else FOUND
    text = run(plan, decision, kernels=kernels, preflight={"e": quiet})
    assert bool(text) == (not plan)
    if text:
        assert [line for line in IN_THE_WAY if f"e: {line}" in text] == (
            IN_THE_WAY if decision is NEEDED else []
        )
        assert "e: kernel: the GPU's architecture is not known" in text
        assert text.endswith("nothing was changed")


@pytest.mark.parametrize("plan", [True, False])
def test_a_converged_host_whose_weights_are_gone_says_so_in_every_mode(
    plan: bool, run: Any
) -> None:
    text = run(plan, IDLE)
    assert "e: /m is missing" in text and text.endswith("could not start again")
    assert "that unit is not ours" not in text and "nothing was changed" not in text


def test_warnings_are_said_and_fail_nothing(run: Any, said: Said) -> None:
    assert run(False, NEEDED, preflight={"e": FOUND[3:]}) is None
    assert said.lines == ["e: warn: vocab_size 1"]


def test_what_the_inventory_ignores_stops_nothing(run: Any) -> None:
    body = "preflight: {ignore: [unit-foreign, weights-missing, gpus-held, kernel-source]}"
    assert run(False, NEEDED, body, kernels={"e": {"python": None}}) is None


def test_what_a_later_step_may_change_is_not_foreseen() -> None:
    for survey in ({"python": None, "sm": "120"}, {"python": "3.11", "sm": "120", "torch": None}):
        known = facts(kernels={"e": survey})
        assert preflight_check.in_the_way(known, whole_engine(""), lambda _: IDLE) == []
    for body in ("kernel: {source: none}", "flags: {device: cpu}", "kernel: {arch: 120a}"):
        known = facts(kernels={"e": {"python": None}})
        assert preflight_check.in_the_way(known, whole_engine(body), lambda _: IDLE) == []


@pytest.mark.parametrize("runs", [True, False])
def test_where_only_the_gpus_are_held_the_program_that_tells_who_comes_first(
    runs: bool, run: Any
) -> None:
    held = [one for one in FOUND if one["id"] == "gpus-held"]
    assert bool(run(False, NEEDED, program_runs=runs, preflight={"e": held})) == runs
