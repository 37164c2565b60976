"""What is in the way of a switch, found in the probe's document before anything is ended."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, cast

import pytest

from roles.engine.desired import DesiredEngine
from roles.stages import preflight_check
from roles.stages.desired import DesiredHost, make
from roles.switch.decision import Decision
from roles.switch.obstacles import blocked, port_taken, too_few_gpus
from tests.support.inventory_case import engine_text, load, only


def engine_with(**changes: Any) -> DesiredEngine:
    entry = only(load(engine_text("port: 8000\n")))
    assert entry.spec is not None, entry.errors
    spec = replace(entry.spec.engines[0], **changes)
    return cast("DesiredEngine", type("Engine", (), {"spec": spec, "name": spec.name})())


def listening(pid: int, unit: str | None) -> dict[str, Any]:
    owner = {"pid": pid, "name": "sshd", "user": "root", "unit": unit}
    return {"listening": [{"address": "0.0.0.0", "port": 8000, "owners": [owner]}]}


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


def facts(**more: Any) -> dict[str, Any]:
    """A host on which everything is in the way of `engine_with()`."""
    return {
        "files": {
            "/etc/systemd/system/sglang-e.service": {"kind": "file", "text": "[Unit]\n"},
            "/m": {"kind": "absent"},
            "/d": {"kind": "unknown"},
        },
        "plans": {"e": {"refused": [{}], "lines": ["refused", "  who"]}},
        "gpus": [{}],
        **listening(46, "ssh.service"),
        **more,
    }


def whole_engine(body: str) -> DesiredEngine:
    entry = only(load(engine_text(f"port: 8000\n{body}")))
    assert entry.spec is not None, entry.errors
    return make(entry.spec).engines[0]


IN_THE_WAY = [
    "/etc/systemd/system/sglang-e.service was not made by sglang-provision",
    "model.path /m is not on the host (absent)",
    "drafter.path /d is not on the host (unknown)",
    "refused\n  who",
    "tensor_parallel is 4 and the host has 1 GPUs",
    "port 8000 is held by sshd",
]


def test_all_that_is_in_the_way_is_told_at_once() -> None:
    found = blocked(facts(), whole_engine("tensor_parallel: 4\ndrafter: {path: /d}\n"))
    assert len(found) == len(IN_THE_WAY)
    assert all(text.startswith(begin) for text, begin in zip(found, IN_THE_WAY, strict=True))


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
        assert preflight_check.obstacles(facts(kernels={"e": survey}), engine, idle) == []
    for body in ("kernel: {source: none}", "flags: {device: cpu}", "kernel: {arch: 120a}"):
        known = facts(kernels={"e": {"python": None}})
        assert preflight_check.obstacles(known, whole_engine(body), idle) == []


@pytest.mark.parametrize("runs", [True, False])
def test_where_only_the_gpus_are_held_the_program_that_tells_who_comes_first(
    runs: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    failed: list[str] = []
    monkeypatch.setattr(preflight_check, "fail_host", failed.append)
    monkeypatch.setattr(preflight_check, "state", type("State", (), {"check_for_changes": False}))
    monkeypatch.setattr(
        preflight_check, "obstacles", lambda facts, engine, decide: ["refused\n  who"]
    )
    known = {**facts(), "program_runs": runs}
    engine = whole_engine("")
    host = cast("DesiredHost", type("Host", (), {"engines": (engine,), "facts": lambda _: known})())
    preflight_check.preflight(host)
    assert len(failed) == runs
