"""What a plan says that a switch would go back to."""

from __future__ import annotations

from typing import Any

import pytest

from sglangctl.state.config import Acceptance
from sglangctl.state.release import State
from sglangctl.switch import before
from sglangctl.switch.before import Before
from tests.support.free_plans import KIMI, VLLM, holder, plan

OLD, NEW = "a" * 64, "b" * 64


@pytest.mark.parametrize(
    ("ran", "words"),
    [
        (Before(False, OLD), "nothing is started again (`rollback: false`)"),
        (Before(True, OLD), "back to release aaaaaaaaaaaa"),
        (
            Before(True, OLD, ("vllm.service",), ("box",)),
            "back to release aaaaaaaaaaaa, vllm.service, container box",
        ),
        (
            Before(True, None, ("vllm.service",), (), (7, 8)),
            "back to vllm.service, without what was started by hand (7, 8)",
        ),
        (Before(True, NEW), "it is the release that ran before (bbbbbbbbbbbb)"),
        (Before(True, None, (), (), (7,)), "started by hand, without a unit or a container (7)"),
        (Before(True), "nothing to go back to, nothing ran before it"),
        (Before(True, unrecorded=True), "nothing to go back to, it runs, and its release is not"),
        (Before(True, None, ("vllm.service",), unrecorded=True), "back to vllm.service"),
    ],
)
def test_the_line(ran: Before, words: str) -> None:
    assert words in before.line(ran, "kimi", NEW)
    assert Before.from_json(ran.to_json()) == ran


def test_processes_without_a_unit_are_named() -> None:
    made = plan(holder(7, "engine"), policy="engines", engine=KIMI)
    assert before.of(State("switching"), made, True).by_hand == (7,)
    assert before.of(State("switching"), plan(units=(VLLM,)), True).by_hand == ()


@pytest.mark.parametrize("release", [OLD, None])
def test_a_release_that_does_not_run_is_none_to_go_back_to(release: str | None) -> None:
    state = State("switching", came_from=release, was_running=False)
    assert before.of(state, plan(), True).release is None
    assert not before.of(state, plan(), True).unrecorded


def test_an_engine_whose_folder_was_deleted_beside_it_did_run() -> None:
    state = State("switching", came_from=None, was_running=True)
    assert before.of(state, plan(), True).unrecorded


@pytest.mark.parametrize("found", [None, [], {"units": "x", "by_hand": ["7"], "release": 3}])
def test_an_answer_of_another_shape(found: Any) -> None:
    assert Before.from_json(found) == Before(True)


def test_the_plan_says_how_long_it_takes() -> None:
    (line,) = before.measured(Acceptance(limit_s=30.0))
    assert "at most 60 s" in line and "serves meanwhile" in line
    assert before.measured(Acceptance(replaced=False)) == [] == before.measured(None)
