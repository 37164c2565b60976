"""The program that runs in the engine's environment, with a torch of the test's own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from sglangctl.collective import in_venv

FAKE = Path(__file__).resolve().parents[3] / "support/fake_torch"


def run(*faults: str, worlds: tuple[int, ...] = (2, 3), limit_s: float = 20.0) -> list[Any]:
    """The answers, with one arm for each fault."""
    request = {
        "device": "cpu",
        "arms": [
            {"name": f"arm{at}", "environment": {"FAULT": one}} for at, one in enumerate(faults)
        ],
        "worlds": worlds,
        "sizes": [4, 64],
        "limit_s": limit_s,
    }
    done = subprocess.run(
        [sys.executable, "-B", in_venv.__file__, json.dumps(request)],
        env={"PYTHONPATH": str(FAKE), "PATH": os.defpath},
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    return [json.loads(line) for line in done.stdout.splitlines()]


def worlds(answers: list[Any]) -> list[Any]:
    return [one for one in answers if one["step"] == "world"]


def test_sums_that_are_right_are_measured_in_every_world_and_arm() -> None:
    answers = run("", "none")
    assert [one["step"] for one in answers[:2]] == ["import", "torch"]
    assert answers[1]["torch"] == "0.0+fake" and answers[-1] == {"step": "end"}
    found = worlds(answers)
    assert [(one["arm"], one["world"], one["outcome"]) for one in found] == [
        ("arm0", 2, "right"), ("arm0", 3, "right"), ("arm1", 2, "right"), ("arm1", 3, "right"),
    ]  # fmt: skip
    assert all([size for size, _ in one["sizes"]] == [4, 64] for one in found)
    assert all(seconds > 0 for one in found for _, seconds in one["sizes"])


@pytest.mark.parametrize(
    ("fault", "outcome", "words"),
    [
        (
            "wrong,1",
            "wrong",
            "rank 1: 1 of 1 sums are wrong at 4 bytes, the first at 0: 38.0 for 37",
        ),
        ("exit,1", "failed", "rank 1 died (had joined)"),
        ("raise,0", "failed", "rank 0: RuntimeError: CUDA error: an illegal memory access"),
        ("refuse,1", "failed", "rank 1: RuntimeError: NCCL error"),
    ],
)
def test_an_arm_ends_with_its_first_fault_and_the_next_one_is_run(
    fault: str, outcome: str, words: str
) -> None:
    found = worlds(run(fault, "", worlds=(2, 3)))
    assert [one["arm"] for one in found] == ["arm0", "arm1", "arm1"]
    assert found[0]["outcome"] == outcome and words in found[0]["text"]
    assert [one["outcome"] for one in found[1:]] == ["right", "right"]


def test_a_world_is_as_fast_as_its_slowest_rank_and_has_no_size_that_one_lacks() -> None:
    def rank(*times: float) -> dict[str, Any]:
        sizes = [
            {"step": "size", "bytes": 4 << at, "median_s": one} for at, one in enumerate(times)
        ]
        return {"lines": [*sizes, {"step": "done"}], "closed": False}

    found = in_venv.judge({0: rank(1.0, 2.0), 1: rank(3.0)}, [4, 8], 2, 1.0)
    assert found["sizes"] == [[4, 3.0]]


@pytest.mark.slow
def test_a_stopped_rank_is_a_hang_and_nothing_of_it_is_left() -> None:
    began = time.monotonic()
    (hung, right) = worlds(run("stop,1", "", worlds=(2,), limit_s=2.0))
    assert hung["outcome"] == "hung" and "left" not in hung
    assert "no end after 2 s" in hung["text"]
    assert "rank 0 had joined" in hung["text"] and "rank 1 had joined" in hung["text"]
    assert right["outcome"] == "right"
    assert time.monotonic() - began < 20


def test_without_torch_it_says_no_more_than_that_it_began() -> None:
    done = subprocess.run(
        [sys.executable, "-I", "-S", in_venv.__file__, "{}"], capture_output=True, text=True
    )
    assert done.returncode == 1 and json.loads(done.stdout) == {"step": "import"}
    assert "No module named 'torch'" in done.stderr


def test_no_two_ranks_or_neighbours_have_the_same_pattern_and_sums_are_exact() -> None:
    """What one rank adds in the place of another, or at another place, must be seen."""
    ranks = [
        [(at + in_venv.STEP * rank) % in_venv.PERIOD for at in range(600)] for rank in range(16)
    ]
    for at in range(600):
        assert len({ranks[rank][at] for rank in range(8)}) == 8
    for rank in ranks:
        assert all(one != two for one, two in zip(rank, rank[1:]))
    assert 64 * (in_venv.PERIOD + 1 + max(times for _, times in in_venv.REPEATED)) < 2**24
