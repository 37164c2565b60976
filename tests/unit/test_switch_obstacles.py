"""What is in the way of a switch, found in the probe's document before anything is ended."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, cast

import pytest

from roles.job import EngineJob
from roles.switch.obstacles import port_taken, too_few_gpus
from tests.unit.spec_case import engine_text, load, only


def job(**changes: Any) -> EngineJob:
    entry = only(load(engine_text("port: 8000\n")))
    assert entry.spec is not None, entry.errors
    spec = replace(entry.spec.engines[0], **changes)
    return cast("EngineJob", type("Job", (), {"spec": spec, "name": spec.name})())


def listening(pid: int, unit: str | None) -> dict[str, Any]:
    owner = {"pid": pid, "name": "sshd", "user": "root", "unit": unit}
    return {"listening": [{"address": "0.0.0.0", "port": 8000, "owners": [owner]}]}


def test_a_port_of_somebody_who_stays_is_in_the_way() -> None:
    said = port_taken(listening(46, "ssh.service"), job(), {})
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
    assert port_taken(listening(46, None), job(), plan) is None


def test_our_own_and_a_replaced_unit_are_not() -> None:
    engine = job(replaces=("vllm.service",))
    assert port_taken(listening(46, engine.spec.unit), engine, {}) is None
    assert port_taken(listening(46, "vllm.service"), engine, {}) is None
    assert port_taken({"listening": None}, engine, {}) is None


def test_more_ranks_than_gpus() -> None:
    two = {"gpus": [{}, {}]}
    assert "the host has 2 GPUs" in (too_few_gpus(two, job(tensor_parallel=3)) or "")
    assert too_few_gpus(two, job(tensor_parallel=2)) is None
    assert too_few_gpus({"gpus": None}, job(tensor_parallel=8)) is None
    assert too_few_gpus(two, job(tensor_parallel=3, flags={"device": "cpu"})) is None
