"""What "ready" needs is decided in one place; the fold of a start and `verify` both ask it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from sglangctl.diagnosis import readiness
from sglangctl.diagnosis.readiness import Check, Decision, Expected, Facts, decide
from sglangctl.engine.readiness_facts import Proof
from sglangctl.report.verify import judged
from sglangctl.startup.fold import Startup
from sglangctl.state.config import EngineConfig
from sglangctl.state.paths import Paths
from tests.support.startup_events import (
    DETOKENIZER,
    MAIN,
    TP0,
    TP1,
    exit_,
    feed,
    generate,
    http,
    launch,
    processes,
    socket,
)

EXPECTED = Expected(
    port=30000,
    served_name="kimi",
    ranks=2,
    speculative=True,
    algorithm="EAGLE3",
    min_accept_length=1.2,
)
GOOD = Facts(
    main_alive=True,
    port_ours=True,
    health=200,
    served_models=("kimi",),
    ranks_alive=2,
    generation_ok=True,
    speculative="EAGLE3",
    accept_length=2.0,
)
RANKS = processes(6, MAIN, TP0, TP1, DETOKENIZER)
OURS, HEALTHY = socket(5, 1, True), http(7, 200)
MODELS = http(7.5, 200, path="/v1/models", models=["kimi"])
PROOF = generate(8, accept_length=2.0, speculative="EAGLE3")
START = (OURS, RANKS, HEALTHY, MODELS, PROOF)

Event = dict[str, Any]
NOT_MET: dict[str, tuple[dict[str, Any], tuple[Event, ...]]] = {
    "main process": ({"main_alive": False}, (*START, exit_(9, 1))),
    "port": ({"port_ours": False}, (socket(5, 9, False), *START[1:])),
    "ranks": ({"ranks_alive": 1}, (OURS, processes(6, MAIN, TP0, DETOKENIZER), *START[2:])),
    "health": ({"health": 503}, (OURS, RANKS, http(7, 503), MODELS)),
    "model": (
        {"served_models": ("other",)},
        (*START[:3], http(7.5, 200, path="/v1/models", models=["other"]), PROOF),
    ),
    "generation": ({"generation_ok": False}, (*START[:4], generate(8, text_ok=False))),
    "speculative decoding": (
        {"speculative": ""},
        (*START[:4], generate(8, accept_length=2.0, speculative="")),
    ),
    "accept length": (
        {"accept_length": 1.0},
        (*START[:4], generate(8, accept_length=1.0, speculative="EAGLE3")),
    ),
}
"""For each condition of `ready`: a fact, and a journal, in which only it is not met."""


def fold(*events: Event) -> Any:
    first = launch(
        served_name="kimi", tensor_parallel=2, drafter={"path": "/d", "algorithm": "EAGLE3"}
    )
    return feed(Startup(), first, *events)


def test_every_condition_has_a_journal() -> None:
    assert [check.name for check in decide(EXPECTED, GOOD).checks] == list(NOT_MET)


def test_all_conditions_met_is_ready_for_both() -> None:
    assert decide(EXPECTED, GOOD).outcome == "ready"
    assert fold(*START).outcome == "ready"


@pytest.mark.parametrize("name", list(NOT_MET))
def test_both_know_each_condition(name: str) -> None:
    changed, events = NOT_MET[name]
    decision = decide(EXPECTED, replace(GOOD, **changed))
    assert [check.name for check in decision.failed] == [name]
    said = fold(*events).outcome
    assert said == "degraded" if decision.outcome else said not in ("ready", "degraded")


@pytest.mark.parametrize("degrades", [True, False])
def test_both_obey_a_new_condition(degrades: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    check = Check("moon", False, "not full", degrades)
    new = Decision("degraded" if degrades else None, (check,))
    monkeypatch.setattr(readiness, "decide", lambda expected, facts: new)
    said = fold(*START)
    assert (said.outcome, said.evidence) == (
        "degraded" if degrades else "serving",
        ("moon: not full",),
    )
    config = EngineConfig(
        name="a", unit="sglang-a.service", user="sglang", port=30000, listen="0.0.0.0",
        model="/m", served_name="kimi", tensor_parallel=2,
    )  # fmt: skip
    report = judged(config, Paths(), Proof(GOOD, None, None), new)
    assert report.outcome == ("degraded" if degrades else None)
    assert "not full" in report.sentence


@pytest.mark.parametrize("name", ["ranks", "model", "speculative decoding", "accept length"])
def test_the_fold_has_no_condition_of_its_own(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(readiness, "decide", lambda expected, facts: Decision("ready", ()))
    assert fold(*NOT_MET[name][1]).outcome == "ready"
