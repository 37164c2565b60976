"""What came back beside an engine that runs, and what is done about it."""

from __future__ import annotations

from typing import Any

import pytest

from roles.engine.desired import desired_engine
from roles.host.managed import ManagedFile
from roles.switch.drift import drift, drift_of
from sglangctl.systemd.unit_names import RESUME_AT_BOOT
from tests.support.host_facts import facts_of
from tests.support.inventory_case import engine as engine_of
from tests.support.inventory_case import engine_text, load, only

RUNS = {"ActiveState": "active", "UnitFileState": "enabled"}
DOWN = {"ActiveState": "inactive", "UnitFileState": "disabled"}


def of(replaced: dict[str, Any] | None, unit: dict[str, Any] | None = None) -> list[str]:
    about = {"unit": unit or RUNS, "replaces": {"vllm.service": replaced}}
    return drift_of(about, "chat").lines


@pytest.mark.parametrize(
    ("replaced", "words"),
    [
        (RUNS, "runs and is enabled again: stop and disable it"),
        ({**RUNS, "UnitFileState": "disabled"}, "runs again: stop and disable it"),
        ({**RUNS, "ActiveState": "activating"}, "runs and is enabled again"),
        ({**DOWN, "UnitFileState": "enabled"}, "is enabled again: disable it"),
    ],
)
def test_a_replaced_unit_that_came_back(replaced: dict[str, Any], words: str) -> None:
    (line,) = of(replaced)
    assert line.startswith("vllm.service, which chat replaces, ")
    assert words in line


@pytest.mark.parametrize(
    "replaced",
    [DOWN, {**DOWN, "ActiveState": "failed"}, {**DOWN, "UnitFileState": ""}, {}, None],
)
def test_what_is_down_is_no_drift(replaced: dict[str, Any] | None) -> None:
    assert of(replaced) == []
    assert drift_of({"unit": RUNS, "replaces": None}, "chat").lines == []


def test_a_unit_of_ours_that_was_disabled_is_enabled() -> None:
    found = drift_of({"unit": {**RUNS, "UnitFileState": "disabled"}}, "chat")
    assert found.disabled == ("sglang-chat.service does not start at boot: enable it",)
    assert found.replaced == ()


def test_a_unit_that_a_failed_switch_disabled_stays_disabled() -> None:
    about = {"unit": {**RUNS, "UnitFileState": "disabled"}, "state": {"phase": "failed"}}
    assert drift_of(about, "chat").lines == []


LOST = {"current": "a", "known_good": None}
RUN = {**RUNS, "InvocationID": "a1"}
READY = {"outcome": "ready", "start": "20261130T100000Z-a1"}


@pytest.mark.parametrize(
    ("engine", "said"),
    [
        ({"state": {"phase": "live"}}, "known-good is lost: make it again"),
        ({"state": {"phase": "back"}}, "known-good is lost"),
        ({"state": None}, "state.json is lost: write it again"),
        ({"state": None, "state_reason": "it cannot be read"}, ""),
        ({}, ""),  # not asked for
        ({"state": {"phase": "live"}, "releases": {**LOST, "known_good": "a"}}, ""),
        ({"state": {"phase": "live"}, "releases": {"current": "a"}}, ""),  # an older program
        ({"state": {"phase": "failed"}}, ""),
        ({"state": {"phase": "switching"}}, ""),
        (
            {"state": {"phase": "live"}, "last": {**READY, "outcome": "serving"}},
            "",
        ),  # not proven yet
        ({"state": None, "last": {**READY, "outcome": "failed"}}, ""),
        ({"state": None, "unit": {**RUN, "ActiveState": "failed"}}, ""),
        ({"state": None, "unit": {**RUN, "InvocationID": "b2"}}, ""),  # of a run before
        ({"state": None, "releases": {**LOST, "current": None}}, ""),
    ],
)
def test_what_a_switch_wrote_when_the_engine_was_proven(engine: dict[str, Any], said: str) -> None:
    found = drift_of({"unit": RUN, "releases": LOST, "last": READY, **engine}, "chat").lines
    assert len(found) == bool(said) and said in "".join(found)


@pytest.mark.parametrize(("degraded", "lines"), [("commit", 1), ("fail", 0)])
def test_a_degraded_engine_is_proven_where_the_inventory_says_so(degraded: str, lines: int) -> None:
    wanted = desired_engine(engine_of(f"readiness: {{degraded: {degraded}}}"))
    last = {"outcome": "degraded", "start": READY["start"]}
    facts = facts_of(wanted, unit=RUN, last=last, state=None, releases=LOST)
    assert len(drift(wanted, facts).proven) == lines


@pytest.mark.parametrize(("kind", "lines"), [("absent", 1), ("link", 0)])
def test_what_looks_for_an_interrupted_switch_starts_at_boot(kind: str, lines: int) -> None:
    entry = only(load(engine_text("port: 8000\n")))
    assert entry.spec is not None
    engine = desired_engine(entry.spec.engines[0])
    files = {
        one.path: as_wanted(one)
        for one in [*engine.live_files.values(), *engine.unit_files.values()]
    }
    files[RESUME_AT_BOOT] = {"kind": kind}
    facts = {"files": files, "engines": {engine.name: {"unit": RUNS}}}
    found = drift(engine, facts).lines
    assert len(found) == lines
    assert all("sglangctl-resume.service does not start at boot" in one for one in found)


def as_wanted(item: ManagedFile) -> dict[str, Any]:
    """What the probe says of a file that is as it should be."""
    rights = {"mode": item.mode, "owner": item.owner, "group": item.group}
    return {"kind": "file", "sha256": item.sha256, **rights}
