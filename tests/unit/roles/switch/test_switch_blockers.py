"""What the host's preflight found, as sentences that stop a switch."""

from __future__ import annotations

from roles.switch.blockers import blockers, findings
from tests.support.blocked_host import FOUND, IN_THE_WAY, facts, whole_engine


def test_all_that_is_in_the_way_is_told_at_once_and_nothing_else() -> None:
    assert blockers(facts(), whole_engine("")) == IN_THE_WAY


def test_a_gate_that_is_asked_for_and_not_possible_is_told_by_the_plan() -> None:
    plain = {"e": {"cutover": {"kind": "plain", "reason": "a drop-in changes its unit"}}}
    (found,) = blockers(facts(preflight={}, plans=plain), whole_engine("cutover: gated\n"))
    assert "a drop-in changes its unit" in found and "cutover: auto" in found
    assert blockers(facts(preflight={}, plans=plain), whole_engine("cutover: auto\n")) == []
    gated = {"e": {"cutover": {"kind": "gated", "reason": "there is room"}}}
    assert blockers(facts(preflight={}, plans=gated), whole_engine("cutover: gated\n")) == []
    assert blockers(facts(preflight={}, plans={}), whole_engine("cutover: gated\n")) == []


def test_what_a_newer_program_says_more_is_left_out() -> None:
    newer = [{**FOUND[0], "since": "0.9", "needed": "ours"}]
    (one,) = findings(facts(preflight={"e": newer}), whole_engine(""))
    assert (one.id, one.needed) == ("unit-foreign", "ours")


def test_where_the_host_could_not_look_nothing_is_in_the_way() -> None:
    for preflight in ({}, {"e": None}, {"other": FOUND}):
        assert blockers(facts(preflight=preflight), whole_engine("")) == []
