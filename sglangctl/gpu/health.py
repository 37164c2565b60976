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
    )


def _flag(value: int | None) -> bool | None:
    return None if value is None else bool(value)
