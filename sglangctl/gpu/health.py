"""Modes and faults of the GPUs that NVML tells in microseconds; nothing without NVML."""

from __future__ import annotations

from dataclasses import dataclass

from sglangctl.gpu.nvml import Nvml, NvmlError


@dataclass(frozen=True)
class Health:
    """One GPU. None: this driver or GPU does not tell."""

    persistence: bool | None = None
    ecc: bool | None = None
    mig: bool | None = None
    rows_pending: bool | None = None
    """Faulty memory rows that are remapped at the next reset."""
    rows_failed: bool | None = None
    """Faulty memory rows for which no spare is left."""
    display: bool | None = None
    power_limit_w: int | None = None
    """In force; and what the board comes with."""
    power_default_w: int | None = None
    lanes: int | None = None
    """Of its PCIe link, and how many slot and GPU could have."""
    lanes_most: int | None = None
    generation_most: int | None = None
    """Of PCIe, as slot and GPU allow it (an idle GPU goes below), and as the GPU alone does."""
    generation_gpu: int | None = None


def read() -> dict[int, Health] | None:
    """By index; None where NVML does not start."""
    try:
        nvml = Nvml()
        return {index: one(nvml, index) for index in range(nvml.count())}
    except NvmlError:
        return None


def one(nvml: Nvml, index: int) -> Health:
    """One GPU; of a lost one nothing is known."""
    try:
        handle = nvml.handle(index)
    except NvmlError:
        return Health()
    rows = nvml.numbers(handle, "RemappedRows", 4)
    ecc, mig = nvml.numbers(handle, "EccMode", 2), nvml.numbers(handle, "MigMode", 2)
    return Health(
        persistence=_flag(nvml.number(handle, "PersistenceMode")),
        ecc=_flag(ecc[0] if ecc else None),
        mig=_flag(mig[0] if mig else None),
        rows_pending=_flag(rows[2] if rows else None),
        rows_failed=_flag(rows[3] if rows else None),
        display=_flag(nvml.number(handle, "DisplayActive")),
        power_limit_w=_watts(nvml.number(handle, "EnforcedPowerLimit")),
        power_default_w=_watts(nvml.number(handle, "PowerManagementDefaultLimit")),
        lanes=nvml.number(handle, "CurrPcieLinkWidth"),
        lanes_most=nvml.number(handle, "MaxPcieLinkWidth"),
        generation_most=nvml.number(handle, "MaxPcieLinkGeneration"),
        generation_gpu=nvml.number(handle, "GpuMaxPcieLinkGeneration"),
    )


def _flag(value: int | None) -> bool | None:
    return None if value is None else bool(value)


def _watts(milliwatts: int | None) -> int | None:
    return None if milliwatts is None else milliwatts // 1000
