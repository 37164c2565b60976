"""Engines that the host has and the inventory does not: left, renamed, removed."""

from __future__ import annotations

from typing import Any

import pytest

from roles.engine.desired import desired_engine
from roles.inventory.model import HostSpec
from roles.report import choice
from roles.stages.desired import gone_of, renamed, takes_of
from roles.switch.choosing import choice_of
from roles.switch.decision import decision_of
from roles.switch.gone import choices, stays_of
from tests.support.host_facts import facts_of
from tests.support.inventory_case import engine, engine_errors

PLAIN, HEIR = desired_engine(engine()), desired_engine(engine("was: old"))
OLD = {"unit_name": "sglang-old.service", "unit": {"ActiveState": "active"}}


def told(prune: str, *engines: Any, **old: Any) -> list[choice.Choice]:
    wanted = engines or (PLAIN,)
    facts = facts_of(wanted[0], releases=None)
    facts["engines"]["old"] = {**OLD, **old}
    return choices(["old"], wanted, prune, facts, "gpu1")


def test_it_is_left_and_its_command_named() -> None:
    (one,) = told("ask")
    assert one.action == choice.LEFT and "is active" in one.reasons[0]
    lines = choice.lines([one], 40)
    command = "pyinfra inventory.py deploys/remove.py --data engine=old --limit gpu1"
    assert lines[-1].strip() == command
    (unknown,) = told("ask", unit=None)
    assert "unknown" in unknown.reasons[0]


def test_it_is_removed_where_the_inventory_says_so() -> None:
    (one,) = told("yes")
    assert one.action == choice.REMOVE and not one.fails
    (one,) = told("no")
    assert one == choice.Choice("old", choice.STAYS)


@pytest.mark.parametrize(
    ("body", "prune", "old", "live", "was"),
    [
        ("", "ask", {}, None, "old"),
        ("", "yes", {}, None, "old"),
        ("", "no", {}, None, None),
        ("", "ask", {"port": 1}, None, None),
        ("", "ask", {"model": "/other"}, None, None),
        ("", "ask", {}, "a" * 64, None),
        ("was: given", "ask", {}, None, "given"),
    ],
)
def test_a_new_engine_with_the_port_and_model_of_one_that_left_is_that_one(
    body: str, prune: str, old: dict[str, Any], live: str | None, was: str | None
) -> None:
    spec = engine(body)
    about = {**OLD, "port": spec.port, "model": spec.model.path, **old}
    facts = {"engines": {"old": about, spec.name: {"releases": {"current": live}}}}
    (found,) = renamed(HostSpec("h", (spec,), prune=prune), ("old",), facts)
    assert found.was == was


def test_a_renamed_engine_is_a_restart_of_its_own_processes() -> None:
    facts = facts_of(HEIR, releases=None, unit=None, last=None, unit_name=HEIR.spec.unit)
    facts["engines"]["old"] = {**OLD, "last": {"served_after_s": 40.0}}
    stop = [{"unit": "sglang-old.service", "pids": [1, 2]}]
    facts["plans"] = {HEIR.name: {"units_to_stop": stop}}
    found = choice_of(HEIR, [], facts, "gpu1")
    assert (found.action, found.own, found.ends) == (choice.RESTART, 2, ())
    assert "takes the place of old" in found.reasons[0] and found.without_s == 40.0
    (old,) = choices(["old"], [HEIR], "ask", facts, "gpu1")
    assert old.action == choice.REMOVE and HEIR.name in old.reasons[0]


def test_the_old_one_stays_while_the_new_one_may_not_take_its_place() -> None:
    never = desired_engine(engine("was: old\nrestart: never"))
    facts = facts_of(never, releases=None, unit=None)
    facts["engines"]["old"] = OLD
    facts["plans"] = {never.name: {"units_to_stop": [{"unit": "sglang-old.service", "pids": [1]}]}}
    assert decision_of(never)(facts).held
    assert "stays until" in (stays_of("old", [never], "yes", "gpu1")(facts) or "")


def test_what_the_host_is_asked_for() -> None:
    ask, prune = HostSpec("h", (HEIR.spec,)), HostSpec("h", (HEIR.spec,), prune="yes")
    facts = {"engines": {HEIR.name: {}, "old": {}, "b": None, "x;id": {}}}
    gone = gone_of(ask, facts)
    assert gone == ("b", "old"), "a name from the host becomes part of a command"
    assert takes_of(HEIR.spec, ask, gone) == {"was": "old", "gone": []}
    assert takes_of(HEIR.spec, prune, gone) == {"was": "old", "gone": ["b"]}
    assert takes_of(HEIR.spec, ask, ("b",)) == takes_of(PLAIN.spec, ask, gone) == {}


def test_a_name_before_that_cannot_be_is_a_mistake() -> None:
    assert "its own name" in engine_errors("was: e")[0]
    assert engine_errors("was: OLD") and engine_errors("was: ../x")
