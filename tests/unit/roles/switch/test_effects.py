"""Each setting that the running process has not read is put right without a restart; no other."""

from __future__ import annotations

from typing import Any

import pytest

from roles.engine.desired import desired_engine
from roles.host.managed import LONGEST
from roles.report import choice
from roles.switch.choosing import choice_of
from roles.switch.decision import decision_of
from roles.switch.drift import drift
from roles.switch.effects import RELOADED
from roles.switch.operations import edited_by_hand
from tests.support.host_facts import facts_of
from tests.support.inventory_case import engine

WANTED = desired_engine(engine())
UNIT = WANTED.installed_unit({})


def edited(text: str | None = None, **fact: Any) -> dict[str, Any]:
    """A host on which the unit's file has another text, or other rights."""
    facts = facts_of(WANTED)
    other = {} if text is None else {"sha256": "0" * 64, "text": text}
    facts["files"][UNIT.path] = {**facts["files"][UNIT.path], **other, **fact}
    return facts


def restarts(facts: dict[str, Any]) -> bool:
    return decision_of(WANTED)(facts).needed


@pytest.mark.parametrize("name", [*RELOADED, "# a remark", "; a remark", ""])
def test_what_the_process_has_not_read(name: str) -> None:
    line = f"{name}=7" if name in RELOADED else name
    facts = edited(f"{UNIT.masked}{line}\n")
    assert not restarts(facts)
    assert "no restart" in drift(WANTED, facts).unit[0] and drift(WANTED, facts).diff
    assert choice_of(WANTED, [], facts, "gpu1").action == choice.REPAIR


@pytest.mark.parametrize(
    "line", ["User=root", "ExecStart=/bin/x", "LimitNOFILE=1", "Environment=A=1", "Restart", "x y"]
)
def test_what_the_process_has_read(line: str) -> None:
    assert restarts(edited(f"{UNIT.masked}{line}\n"))
    assert drift(WANTED, edited(f"{UNIT.masked}{line}\n")).unit == ()


def test_a_line_that_was_taken_away_counts_too() -> None:
    lines = UNIT.masked.splitlines(keepends=True)
    without = [line for line in lines if not line.startswith("KillMode=")]
    assert not restarts(edited("".join(without)))
    assert restarts(edited("".join(line for line in lines if not line.startswith("User="))))


def test_what_a_cut_diff_leaves_out_restarts() -> None:
    remarks = "# a remark\n" * LONGEST
    assert restarts(edited(f"{UNIT.masked}{remarks}User=root\n"))


@pytest.mark.parametrize("fact", [{"kind": "link", "target": "/dev/null"}, {"sha256": "0" * 64}])
def test_what_cannot_be_compared_restarts(fact: dict[str, Any]) -> None:
    assert restarts(edited(**fact))


def test_a_mode_is_changed_back() -> None:
    facts = edited(mode="0666")
    path = f"{WANTED.spec.current}/nccl.env"
    facts["files"][path] = {**facts["files"][path], "mode": "0777"}
    assert not restarts(facts)
    found = drift(WANTED, facts)
    assert [one.item.path for one in found.rights] == [path]
    assert any("0777" in line for line in found.lines) and any(
        "0666" in line for line in found.unit
    )
    facts["files"][path]["sha256"] = "0" * 64
    assert restarts(facts) and drift(WANTED, facts).rights == ()


def test_a_reload_that_is_due_restarts_nothing() -> None:
    unit = {"ActiveState": "active", "UnitFileState": "enabled", "NeedDaemonReload": "yes"}
    facts = facts_of(WANTED, unit=unit)
    assert not restarts(facts)
    assert "reload, no restart" in drift(WANTED, facts).unit[0]


def test_what_is_overwritten_is_known_as_somebody_left_it() -> None:
    """Only where nothing else differs: else it could be the inventory's own change."""
    facts = edited(f"{UNIT.masked}User=root\n")
    (unit,) = edited_by_hand(WANTED, facts)
    assert unit.item.path == UNIT.path and any("User=root" in line for line in unit.diff)
    assert edited_by_hand(WANTED, facts_of(WANTED)) == []
    facts["engines"][WANTED.name]["releases"]["current"] = "b" * 64
    assert edited_by_hand(WANTED, facts) == []


LONGER = desired_engine(engine("readiness: {limits: {start_s: 7200}}"))


def test_a_longer_time_limit_of_ours_goes_live_without_a_restart() -> None:
    facts = facts_of(WANTED)
    assert not decision_of(LONGER)(facts).needed
    found = drift(LONGER, facts)
    assert "StartLimitIntervalSec" in found.unit[0] and "no restart" in found.unit[0]
    assert found.diff == (), "it is the inventory's change, not somebody's"
    told = choice_of(LONGER, [], facts, "gpu1")
    assert told.action == choice.REPAIR and "start_s 3600.0 -> 7200.0" in told.reasons


@pytest.mark.parametrize(
    "about",
    [
        {"unit": {"ActiveState": "inactive", "UnitFileState": "enabled"}},
        {"state": {"phase": "failed"}},
        {"state": {"phase": "switching"}},
        {"state": None},
    ],
)
def test_where_the_live_release_is_not_kept_it_is_a_switch(about: dict[str, Any]) -> None:
    facts = facts_of(WANTED)
    facts["engines"][WANTED.name].update(about)
    assert decision_of(LONGER)(facts).needed


@pytest.mark.parametrize("file", ["engine.yaml", "nccl.env"])
def test_beside_what_the_process_has_read_it_is_a_restart(file: str) -> None:
    facts = facts_of(WANTED)
    path = f"{WANTED.spec.current}/{file}"
    facts["files"][path] = {**facts["files"][path], "sha256": "0" * 64}
    assert decision_of(LONGER)(facts).needed


def test_a_missing_unit_is_written_again_and_nothing_is_started() -> None:
    facts = edited(kind="absent")
    assert not restarts(facts)
    found = drift(WANTED, facts)
    assert "is missing: write it, no restart" in found.unit[0]
    assert found.diff == (), "nobody's edit is lost"


def test_a_live_release_without_its_unit_cannot_be_compared() -> None:
    facts = facts_of(WANTED)
    facts["files"][f"{WANTED.spec.current}/sglang.service"] = {"kind": "absent"}
    assert decision_of(LONGER)(facts).needed
