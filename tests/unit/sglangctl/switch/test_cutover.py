"""Which way a switch takes over, and why."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from sglangctl.switch.cutover import (
    AUTO,
    GATED,
    PLAIN,
    Cutover,
    Facts,
    decide,
    has_gate,
    wanted_mib,
)

GOOD = Facts(serves=True, gate=True, ranks=2, free_mib={0: 14_000, 1: 9_000}, available_mib=80_000)


def test_gated_says_the_numbers_that_it_rests_on() -> None:
    found = decide(AUTO, GOOD)
    assert found.kind == GATED
    assert "GPU 1 has 9,000 MiB free (2,560 wanted)" in found.reason
    assert "80,000 MiB of memory available (6,144 wanted)" in found.reason


@pytest.mark.parametrize("wanted", [AUTO, GATED])
@pytest.mark.parametrize(
    ("facts", "reason"),
    [
        (replace(GOOD, serves=False), "nothing runs that it would take over from"),
        (replace(GOOD, gate=False), "its SGLang has no gate"),
        (replace(GOOD, hindered=("a drop-in changes its unit: x",)), "a drop-in changes its unit"),
        (replace(GOOD, free_mib=None), "the free memory of its GPUs cannot be told"),
        (replace(GOOD, free_mib={0: 9_000, 1: 2_559}), "GPU 1 has 2,559 MiB free"),
        (replace(GOOD, available_mib=None), "the available memory of this host cannot be told"),
        (replace(GOOD, available_mib=wanted_mib(2) - 1), "6,143 MiB of memory are available"),
    ],
)
def test_plain_says_what_speaks_against_a_gate(wanted: str, facts: Facts, reason: str) -> None:
    found = decide(wanted, facts)
    assert found.kind == PLAIN
    assert reason in found.reason


def test_an_engine_in_no_slot_moves_to_one_where_nothing_else_speaks_against_a_gate() -> None:
    single = replace(GOOD, single="sglang-x.service")
    found = decide(AUTO, single)
    assert (found.kind, found.moves) == (PLAIN, True)
    assert "sglang-x.service" in found.reason
    assert not decide(PLAIN, single).moves
    assert not decide(AUTO, replace(single, gate=False)).moves


def test_a_gate_is_missed_only_where_something_would_be_stopped_for_the_want_of_it() -> None:
    assert decide(GATED, replace(GOOD, gate=False)).refused(GATED)
    assert decide(GATED, replace(GOOD, single="sglang-x.service")).refused(GATED)
    assert not decide(GATED, replace(GOOD, serves=False)).refused(GATED)
    assert not decide(GATED, GOOD).refused(GATED)
    assert not decide(AUTO, replace(GOOD, gate=False)).refused(AUTO)


def test_what_is_asked_for_is_done(tmp_path: Path) -> None:
    assert decide(PLAIN, GOOD) == Cutover(PLAIN, "the inventory says so")
    assert decide(GATED, GOOD).gated
    on_a_processor = replace(GOOD, free_mib={}, ranks=1)
    assert decide(AUTO, on_a_processor).gated


def test_before_the_venv_is_there_the_plan_says_what_is_expected(tmp_path: Path) -> None:
    assert has_gate(tmp_path / "venv") is None
    found = decide(AUTO, replace(GOOD, gate=None))
    assert found.gated and "decided when the venv is there" in found.reason


def test_the_gate_is_looked_for_in_the_venv(tmp_path: Path) -> None:
    (tmp_path / "bin").mkdir()
    assert has_gate(tmp_path) is False
    module = tmp_path / "lib/python3.11/site-packages/sglang/srt/distributed/gated_launch.py"
    module.parent.mkdir(parents=True)
    module.touch()
    assert has_gate(tmp_path) is True


@pytest.mark.parametrize(
    "document", [None, [], {}, {"kind": "both", "reason": "x"}, {"kind": GATED}]
)
def test_what_a_host_says_is_checked(document: object) -> None:
    assert Cutover.from_json(document) is None
    for found in (
        Cutover(GATED, "x"),
        Cutover(PLAIN, "x", stops=False),
        Cutover(PLAIN, "x", True, True),
    ):
        assert Cutover.from_json(found.to_json()) == found
