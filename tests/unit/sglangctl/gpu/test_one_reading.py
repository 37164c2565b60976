"""The parts of one document agree on the GPUs, and nvidia-smi is not asked for each."""

from __future__ import annotations

import pytest

from sglangctl.gpu import gpus
from sglangctl.gpu.nvml import NvmlError


def test_one_look_while_inside(monkeypatch: pytest.MonkeyPatch) -> None:
    looks = []

    def none() -> None:
        looks.append(1)
        raise NvmlError("no driver")

    monkeypatch.setattr(gpus, "_nvml", None)
    monkeypatch.setattr(gpus, "Nvml", none)
    monkeypatch.setattr(gpus, "_from_smi", lambda reason: gpus.Reading(None, None, reason))
    with gpus.one_reading():
        assert gpus.read() is gpus.read()
        assert len(looks) == 1
    assert gpus.read().reason == "no driver"
    assert len(looks) == 2
