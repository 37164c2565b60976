"""With which release a host is compared: the wanted one, or the fallback that serves instead."""

from __future__ import annotations

from typing import Any

import pytest

from roles.engine.desired import DesiredEngine, desired_engine
from roles.report import choice
from roles.switch.choosing import choice_of
from roles.switch.decision import decision_of, side_of
from roles.switch.drift import drift
from roles.switch.staged import differing
from tests.support.host_facts import as_it_should_be, facts_of
from tests.support.inventory_case import engine

BODY = "flags: {attention-backend: fa3}\nfallbacks: {triton: {flags: {attention-backend: triton}}}"
WANTED = desired_engine(engine(BODY))
TRITON = WANTED.fallbacks["triton"]


def facts(**about: Any) -> dict[str, Any]:
    """Of a host on which the fallback serves."""
    known = {
        "phase": "live",
        "fallback": {
            "name": "triton",
            "instead_of": WANTED.release.digest,
            "cause": "gpu-out-of-memory",
        },
    }
    return facts_of(TRITON, **{"state": known, **about})


def chosen(wanted: DesiredEngine, found: dict[str, Any]) -> choice.Choice:
    return choice_of(wanted, [], found, "h")


def test_an_unchanged_inventory_leaves_the_fallback_that_serves() -> None:
    found = facts()
    assert side_of(WANTED, found) is TRITON
    assert not decision_of(WANTED)(found).needed
    assert not drift(WANTED, found).lines
    told = chosen(WANTED, found)
    assert told.action == choice.STAYS
    (note,) = told.notes
    assert "fallback triton serves because gpu-out-of-memory" in note
    assert WANTED.release.digest[:12] in note


@pytest.mark.parametrize(
    "body",
    [
        BODY.replace("fa3", "flashinfer"),
        BODY.replace("backend: triton", "backend: flashinfer"),
        "flags: {attention-backend: fa3}",
    ],
    ids=["the engine", "the fallback", "no fallback"],
)
def test_a_changed_inventory_tries_the_wanted_one_again(body: str) -> None:
    changed = desired_engine(engine(body))
    assert side_of(changed, facts()) is changed
    assert decision_of(changed)(facts()).needed
    assert chosen(changed, facts()).action == choice.RESTART


@pytest.mark.parametrize(
    "about",
    [
        {"unit": {"ActiveState": "failed", "UnitFileState": "enabled"}},
        {"state": {"phase": "stopped", "fallback": {"instead_of": WANTED.release.digest}}},
        {"state": {"phase": "live", "fallback": "odd"}},
        {"releases": {"current": "e" * 64}},
    ],
    ids=["failed", "stopped", "odd", "another"],
)
def test_what_has_to_be_started_begins_with_the_wanted_one(about: dict[str, Any]) -> None:
    found = facts(**about)
    assert side_of(WANTED, found) is WANTED
    assert decision_of(WANTED)(found).needed


def test_an_edited_fallback_is_not_one() -> None:
    found = facts()
    path = TRITON.live_files["engine.yaml"].path
    found["files"][path] = {**found["files"][path], "sha256": "0" * 64, "text": "x: 1\n"}
    assert side_of(WANTED, found) is WANTED


def test_drift_beside_it_is_repaired_by_the_fallback_s_own_files() -> None:
    found = facts(unit={"ActiveState": "active", "UnitFileState": "disabled"})
    (line,) = drift(WANTED, found).lines
    assert "does not start at boot" in line
    assert side_of(WANTED, found) is TRITON


def test_in_what_they_differ() -> None:
    assert differing(WANTED, TRITON) == ["attention-backend fa3 -> triton"]
    assert as_it_should_be(TRITON.config) == as_it_should_be(WANTED.config)
