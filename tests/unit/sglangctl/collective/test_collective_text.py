"""What a result tells people to do."""

from __future__ import annotations

import pytest

from sglangctl.collective.answers import HUNG, NOT_POSSIBLE, RIGHT, WRONG, Found, Result
from sglangctl.collective.run import Kept
from sglangctl.collective.text import lines, next_step

OFF = {"NCCL_P2P_DISABLE": "1"}


def kept(*arms: tuple[dict[str, str], str], device: str = "cuda") -> Kept:
    found = tuple(Found("a", environment, outcome, "x") for environment, outcome in arms)
    return Kept("chat", Result(found), {"device": device, "key": {}})


@pytest.mark.parametrize(
    ("arms", "words"),
    [
        ([({}, RIGHT), (OFF, HUNG)], ""),
        ([({}, HUNG), (OFF, RIGHT)], "until it is mended set nccl.profile safe"),
        ([({}, WRONG), (OFF, RIGHT)], "`sglangctl preflight chat` names"),
        # NCCL refused to copy from GPU to GPU, and said so.
        ([({}, NOT_POSSIBLE), (OFF, RIGHT)], "until it is mended set nccl.profile safe"),
        ([({}, NOT_POSSIBLE), (OFF, NOT_POSSIBLE)], ""),
        ([({}, HUNG), (OFF, HUNG)], "without peer-to-peer either: dmesg"),
        ([(OFF, HUNG)], "without peer-to-peer either: dmesg"),
        ([({}, HUNG)], ""),
    ],
)
def test_the_next_step(arms: list[tuple[dict[str, str], str]], words: str) -> None:
    step = next_step(kept(*arms))
    assert words in step and bool(words) is bool(step)
    assert any("next step:" in line for line in lines(kept(*arms))) is bool(words)


def test_nothing_on_pcie_is_to_blame_without_a_gpu() -> None:
    assert next_step(kept(({}, HUNG), (OFF, RIGHT), device="cpu")) == ""
