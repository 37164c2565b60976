from __future__ import annotations

from dataclasses import replace

import pytest

from sglangctl.diagnosis.readiness import Decision, Expected, Facts
from sglangctl.diagnosis.readiness import decide as decide_by
from sglangctl.state.config import Drafter, EngineConfig, Readiness

PLAIN = EngineConfig(
    name="a", unit="sglang-a.service", user="sglang", port=8000, listen="0.0.0.0",
    model="/m", served_name="tiny", tensor_parallel=2,
)  # fmt: skip
DRAFTING = replace(PLAIN, drafter=Drafter(path="/d", steps=3))
GOOD = Facts(
    main_alive=True,
    port_ours=True,
    health=200,
    served_models=("tiny", "adapter"),
    ranks_alive=2,
    generation_ok=True,
    speculative="EAGLE3",
    accept_length=2.4,
)


def decide(config: EngineConfig, facts: Facts) -> Decision:
    return decide_by(Expected.of(config), facts)


def test_everything_right_is_ready() -> None:
    assert decide(PLAIN, GOOD).outcome == "ready"
    assert decide(DRAFTING, GOOD).outcome == "ready"


@pytest.mark.parametrize(
    ("changed", "name"),
    [
        ({"main_alive": False}, "main process"),
        ({"port_ours": False}, "port"),
        ({"health": 503}, "health"),
        ({"health": None, "health_error": "TimeoutError"}, "health"),
        ({"served_models": ("other",)}, "model"),
        ({"served_models": ()}, "model"),
        ({"ranks_alive": 1}, "ranks"),
        ({"ranks_wrong": ("sglang::detokenizer (pid 7) is stopped",)}, "ranks"),
        ({"generation_ok": False, "generation_fault": "the answer is empty"}, "generation"),
    ],
)
def test_each_fact_alone_decides_against_it(changed: dict[str, object], name: str) -> None:
    decision = decide(DRAFTING, replace(GOOD, **changed))  # type: ignore[arg-type]
    assert decision.outcome is None
    assert decision.first is not None and decision.first.name == name
    assert decision.first.passed is False


@pytest.mark.parametrize(
    ("changed", "name"),
    [
        ({"port_ours": None}, "port"),
        ({"ranks_alive": None}, "ranks"),
        ({"health": None}, "health"),
        ({"served_models": None}, "model"),
        ({"generation_ok": None}, "generation"),
    ],
)
def test_unknown_is_neither_ready_nor_broken(changed: dict[str, object], name: str) -> None:
    decision = decide(PLAIN, replace(GOOD, **changed))  # type: ignore[arg-type]
    assert decision.outcome is None
    assert decision.failed == ()
    assert decision.first is not None and decision.first.name == name


@pytest.mark.parametrize(
    "changed",
    [
        {"accept_length": 1.0},
        {"accept_length": 1.19},
        {"speculative": ""},
        {"speculative_faults": ("steps 5, declared is 3",)},
    ],
)
def test_a_drafter_that_does_not_help_degrades(changed: dict[str, object]) -> None:
    decision = decide(DRAFTING, replace(GOOD, **changed))  # type: ignore[arg-type]
    assert decision.outcome == "degraded"
    # Without a drafter in the inventory the same facts mean nothing.
    assert decide(PLAIN, replace(GOOD, **changed)).outcome == "ready"  # type: ignore[arg-type]


def test_accept_length_that_cannot_be_told_leaves_it_ready_and_says_so() -> None:
    unknown = replace(GOOD, accept_length=None, accept_source="others used the engine")
    decision = decide(DRAFTING, unknown)
    assert decision.outcome == "ready"
    assert any("cannot tell: others used the engine" in check.detail for check in decision.checks)


def test_the_floor_is_the_inventory_s() -> None:
    strict = replace(DRAFTING, readiness=Readiness(min_accept_length=2.5))
    assert decide(strict, GOOD).outcome == "degraded"


@pytest.mark.parametrize(
    ("known", "main", "text"),
    [
        (True, "runs", "sane text"),
        (False, "does not run", "no sane text"),
        (None, "not known", "not known"),
    ],
)
def test_what_a_check_says(known: bool | None, main: str, text: str) -> None:
    facts = replace(GOOD, main_alive=known, generation_ok=known)
    said = {check.name: check for check in decide(PLAIN, facts).checks}
    assert (said["main process"].detail, said["generation"].detail) == (main, text)
    assert said["main process"].passed is known and said["generation"].passed is known
