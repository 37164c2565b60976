"""What is in the way of a switch, found in the probe's document before anything is ended."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, cast

import pytest

from roles.engine.desired import DesiredEngine
from roles.switch.blockers import blockers, port_taken, too_few_gpus
from tests.support.blocked_host import IN_THE_WAY, facts, listening, whole_engine
from tests.support.inventory_case import engine_text, load, only


def engine_with(**changes: Any) -> DesiredEngine:
    entry = only(load(engine_text("port: 8000\n")))
    assert entry.spec is not None, entry.errors
    spec = replace(entry.spec.engines[0], **changes)
    return cast("DesiredEngine", type("Engine", (), {"spec": spec, "name": spec.name})())


def test_a_port_of_somebody_who_stays_is_in_the_way() -> None:
    said = port_taken(listening(46, "ssh.service"), engine_with())
    assert said is not None
    assert "port 8000 is held by sshd (pid 46, ssh.service)" in said


@pytest.mark.parametrize(
    "plan",
    [
        {"units_to_stop": [{"pids": [46]}]},
        {"containers_to_stop": [{"pids": [46]}]},
        {"processes_to_end": [{"pid": 46}]},
    ],
)
def test_who_is_going_to_be_ended_is_not(plan: dict[str, Any]) -> None:
    engine = engine_with()
    known = {**listening(46, None), "plans": {engine.name: plan}}
    assert port_taken(known, engine) is None


def test_our_own_and_a_replaced_unit_are_not() -> None:
    engine = engine_with(replaces=("vllm.service",))
    assert port_taken(listening(46, engine.spec.unit), engine) is None
    assert port_taken(listening(46, "vllm.service"), engine) is None
    assert port_taken({"listening": None}, engine) is None


def test_more_ranks_than_gpus() -> None:
    two = {"gpus": [{}, {}]}
    assert "the host has 2 GPUs" in (too_few_gpus(two, engine_with(tensor_parallel=3)) or "")
    assert too_few_gpus(two, engine_with(tensor_parallel=2)) is None
    assert too_few_gpus({"gpus": None}, engine_with(tensor_parallel=8)) is None
    assert too_few_gpus(two, engine_with(tensor_parallel=3, flags={"device": "cpu"})) is None


def test_all_that_is_in_the_way_is_told_at_once() -> None:
    found = blockers(facts(), whole_engine("tensor_parallel: 4\ndrafter: {path: /d}\n"))
    assert len(found) == len(IN_THE_WAY)
    assert all(text.startswith(begin) for text, begin in zip(found, IN_THE_WAY, strict=True))
