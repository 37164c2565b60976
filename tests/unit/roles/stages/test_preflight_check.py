"""Without a plan (-y), a deploy that cannot come to its end is not begun."""

from __future__ import annotations

from typing import cast

import pytest

from roles.stages import preflight_check
from roles.stages.desired import DesiredHost
from roles.switch.decision import Decision
from tests.support.blocked_host import IN_THE_WAY, facts, whole_engine


@pytest.mark.parametrize("plan", [True, False])
@pytest.mark.parametrize("needed", [True, False])
def test_without_a_plan_nothing_is_begun_that_cannot_end(
    plan: bool, needed: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = whole_engine("tensor_parallel: 4\ndrafter: {path: /d}\n")
    failed: list[str] = []
    monkeypatch.setattr(preflight_check, "fail_host", failed.append)
    monkeypatch.setattr(preflight_check, "state", type("State", (), {"check_for_changes": plan}))
    known = facts(kernels={"e": {"python": None}})
    host = cast("DesiredHost", type("Host", (), {"engines": (engine,), "facts": lambda _: known})())
    decision = Decision(("no release is live yet",) if needed else ())
    monkeypatch.setattr(preflight_check, "decision_of", lambda _: lambda _: decision)
    preflight_check.preflight(host)
    assert bool(failed) == (not plan)
    if plan:
        assert failed == []
        return
    (text,) = failed
    assert [begin for begin in IN_THE_WAY if f"e: {begin}" in text] == IN_THE_WAY * needed
    assert "e: kernel: the GPU's architecture is not known" in text
    assert text.endswith("nothing was touched")


def test_what_a_later_step_may_change_is_not_foreseen() -> None:
    engine = whole_engine("")
    idle = lambda _: Decision(())  # noqa: E731
    for survey in ({"python": None, "sm": "120"}, {"python": "3.11", "sm": "120", "torch": None}):
        assert preflight_check.all_blockers(facts(kernels={"e": survey}), engine, idle) == []
    for body in ("kernel: {source: none}", "flags: {device: cpu}", "kernel: {arch: 120a}"):
        known = facts(kernels={"e": {"python": None}})
        assert preflight_check.all_blockers(known, whole_engine(body), idle) == []


@pytest.mark.parametrize("runs", [True, False])
def test_where_only_the_gpus_are_held_the_program_that_tells_who_comes_first(
    runs: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    failed: list[str] = []
    monkeypatch.setattr(preflight_check, "fail_host", failed.append)
    monkeypatch.setattr(preflight_check, "state", type("State", (), {"check_for_changes": False}))
    monkeypatch.setattr(
        preflight_check, "all_blockers", lambda facts, engine, decide: ["refused\n  who"]
    )
    known = {**facts(), "program_runs": runs}
    engine = whole_engine("")
    host = cast("DesiredHost", type("Host", (), {"engines": (engine,), "facts": lambda _: known})())
    preflight_check.preflight(host)
    assert len(failed) == runs
