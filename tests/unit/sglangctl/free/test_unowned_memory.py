"""Memory that belongs to no process that can be seen: refused before anything is stopped for it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from sglangctl.free import gather, text, verdicts
from sglangctl.gpu import gpus
from sglangctl.holders.survey import Holder
from sglangctl.state.config import HostConfig
from tests.support.free_plans import KIMI, holder, plan, unit

GPU = gpus.Gpu(0, "u", "n", "b", "12.0", 10, 97887, 0, 30.0, "580", power_limit_w=600.0)


def on_gpu_1(used: int, source: str = "nvml", **facts: Any) -> gpus.Reading:
    return gpus.Reading((replace(GPU, index=1, memory_used_mib=used, **facts),), source)


ENGINE_OF_OURS = holder(5, "ours", (1,), system_unit="sglang-kimi.service", memory_mib={1: 60000})
"""Serves now, on GPU 1."""


def test_memory_of_nobody_is_refused_before_our_engine_is_stopped() -> None:
    made = plan(
        ENGINE_OF_OURS, stop=True, units=(unit("sglang-kimi.service"),), reading=on_gpu_1(162926)
    )
    (refusal,) = made.refused
    assert refusal.gpus == (1,)
    said = text.refusal_sentence(made)
    assert "102,926 MiB on GPU 1 belong to no process that can be seen from here" in said
    assert "nvidia-smi --gpu-reset -i 1" in said
    assert "`readiness.limits.memory_free_mib` of kimi above 102926" in said
    lines = text.plan_lines(made)
    assert any("102,926 MiB" in line for line in lines)
    # The line that a deploy ends with: no process is there that could be ended.
    assert "belongs to no process that can be seen from here" in lines[0]


def test_a_reset_is_no_advice_where_not_everything_can_be_seen() -> None:
    made = plan(reading=on_gpu_1(50000), on_the_host=False)
    said = text.refusal_sentence(made)
    assert "50,000 MiB" in said and "on the host itself" in said
    assert "reset" not in said


@pytest.mark.parametrize(
    ("found", "reading"),
    [
        ((ENGINE_OF_OURS,), on_gpu_1(60900)),  # the driver's own part
        ((), on_gpu_1(1023)),
        ((), gpus.Reading((replace(GPU, index=2, memory_used_mib=90000),), "nvml")),  # not its GPU
        ((), gpus.Reading((replace(GPU, index=1, memory_used_mib=None),), "nvml")),
        ((), gpus.Reading(None, None, "no driver")),
        # Nobody is listed, or without a number: whose it is cannot be told (MIG, some containers).
        ((replace(ENGINE_OF_OURS, memory_mib={}),), on_gpu_1(60000)),
        ((replace(ENGINE_OF_OURS, memory_mib={1: None}),), on_gpu_1(60000)),
        # nvidia-smi does not list a desktop's graphics.
        ((holder(7, "protected", (1,)),), on_gpu_1(3000, "nvidia-smi")),
    ],
)
def test_what_the_driver_does_not_tell_is_not_memory_of_nobody(
    found: tuple[Holder, ...], reading: gpus.Reading
) -> None:
    units = (unit("sglang-kimi.service"),)
    assert not plan(*found, stop=True, units=units, reading=reading).refused


def test_a_wedged_gpu_is_refused_as_one() -> None:
    reading = on_gpu_1(76000, utilization_pct=100, power_w=110.0)
    assert "a wedged collective" in text.refusal_sentence(plan(reading=reading))


def test_memory_that_comes_free_late_is_nobodys_for_a_while(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    looks = [on_gpu_1(76000), on_gpu_1(76000), on_gpu_1(3)]
    made = plan()
    assert made.situation is not None
    seen = iter([replace(made.situation, reading=one) for one in looks])
    monkeypatch.setattr(gather, "look", lambda *_: next(seen))
    slept: list[float] = []
    monkeypatch.setattr(gather.time, "sleep", slept.append)
    assert gather.situation(KIMI, HostConfig(), ()).reading == looks[-1]
    assert slept == [gather.PAUSE_S] * 2


@pytest.mark.parametrize(("power_w", "wedged"), [(150.0, True), (150.5, False)])
def test_idle_power_of_a_gpu_whose_limit_is_not_known(power_w: float, wedged: bool) -> None:
    gpu = replace(GPU, utilization_pct=100, power_w=power_w, power_limit_w=None)
    assert verdicts.is_wedged(gpu) is wedged
