"""The GPUs of this host: NVML first, nvidia-smi where NVML is unavailable.

`read()` also returns the source of the numbers, or why there are none; `sample()` is its list.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from sglangctl.gpu import pcie
from sglangctl.gpu.nvml import Nvml, NvmlError
from sglangctl.proc import procfs
from sglangctl.util.values import digits

FIELDS = (
    "index",
    "uuid",
    "name",
    "pci.bus_id",
    "memory.used",
    "memory.total",
    "utilization.gpu",
    "power.draw",
    "driver_version",
    "compute_cap",
    "power.limit",
)
"""Of nvidia-smi --help-query-gpu. The last two are left out for a program that refuses them."""
ALWAYS = 9
SMI_TIMEOUT_S = 20.0
"""nvidia-smi takes seconds without a persistence daemon, and hangs on a broken driver."""


@dataclass(frozen=True)
class Gpu:
    """One GPU. None: this driver or GPU does not report it. `minor` is the N of /dev/nvidiaN."""

    index: int
    uuid: str
    name: str
    bus_id: str
    compute_capability: str | None
    """As in `12.0`."""
    memory_used_mib: int | None
    memory_total_mib: int | None
    utilization_pct: int | None
    power_w: float | None
    driver: str | None
    processes: tuple[tuple[int, int | None], ...] = ()
    """(pid, MiB or None) of each process with a context on it. The parent and the detokenizer
    of an engine are not among them: they only hold the device open."""
    power_limit_w: float | None = None
    minor: int = -1
    error: str | None = None
    """Why the driver cannot read this GPU (lost, say): the rest is then empty."""


@dataclass(frozen=True)
class Reading:
    """`gpus` is None when nothing could tell; `reason` is then one sentence."""

    gpus: tuple[Gpu, ...] | None
    source: str | None
    """`nvml` or `nvidia-smi`."""
    reason: str | None = None


_nvml: Nvml | None = None
_kept: Reading | None = None


def sample() -> list[Gpu] | None:
    """All GPUs with what they do now; None when neither NVML nor nvidia-smi answers."""
    found = read().gpus
    return None if found is None else list(found)


def read() -> Reading:
    """As `sample`, with the source and the reason. Never raises for what the host lacks."""
    global _nvml, _kept
    if _kept is not None:
        return _kept
    try:
        _nvml = _nvml or Nvml()
        return Reading(tuple(_from_nvml(_nvml)), "nvml")
    except NvmlError as error:
        _nvml = None  # the driver may have been reloaded: open it again the next time
        return _from_smi(str(error))


@contextmanager
def one_reading() -> Iterator[None]:
    """While inside, `read` looks once: the parts of one document must agree, and nvidia-smi is slow."""
    global _kept
    _kept = read()
    try:
        yield
    finally:
        _kept = None


def by_minor(gpus: tuple[Gpu, ...] | None) -> dict[int, int]:
    """The N of /dev/nvidiaN -> the index that nvidia-smi and CUDA use (not always the same)."""
    return {gpu.minor: gpu.index for gpu in gpus or ()}


def _from_nvml(nvml: Nvml) -> list[Gpu]:
    driver = nvml.driver()
    found = []
    for index in range(nvml.count()):
        try:
            handle = nvml.handle(index)
        except NvmlError as error:
            found.append(_unreadable(index, driver, str(error)))
            continue
        used, total = nvml.memory(handle) or (None, None)
        power, limit = nvml.number(handle, "PowerUsage"), nvml.number(handle, "EnforcedPowerLimit")
        minor = nvml.number(handle, "MinorNumber")
        found.append(
            Gpu(
                index=index,
                uuid=nvml.text(handle, "UUID") or "",
                name=nvml.text(handle, "Name") or "",
                bus_id=nvml.bus_id(handle) or "",
                compute_capability=nvml.compute_capability(handle),
                memory_used_mib=used,
                memory_total_mib=total,
                utilization_pct=nvml.utilization(handle),
                power_w=None if power is None else power / 1000,
                driver=driver,
                processes=tuple(sorted(nvml.processes(handle).items())),
                power_limit_w=None if limit is None else limit / 1000,
                minor=index if minor is None else minor,
            )
        )
    return found


def _unreadable(index: int, driver: str | None, reason: str) -> Gpu:
    return Gpu(index, "", "", "", None, None, None, None, None, driver, minor=index, error=reason)


def _from_smi(why_no_nvml: str) -> Reading:
    fields: tuple[str, ...] = FIELDS
    rows = _smi(f"--query-gpu={','.join(fields)}")
    if isinstance(rows, str) and "not a valid field" in rows:
        fields = FIELDS[:ALWAYS]
        rows = _smi(f"--query-gpu={','.join(fields)}")
    if isinstance(rows, str):
        return Reading(None, None, f"{why_no_nvml}; nvidia-smi: {rows}")
    processes = _smi("--query-compute-apps=gpu_uuid,pid,used_memory")
    holding: dict[str, dict[int, int | None]] = {}
    for row in processes if not isinstance(processes, str) else []:
        pid = digits(row[1]) if len(row) == 3 else None
        if pid is not None:
            holding.setdefault(row[0], {})[pid] = _whole(row[2])
    found = [
        _from_row(index, dict(zip(fields, row)), holding)
        for row in rows
        if len(row) == len(fields) and (index := digits(row[0])) is not None
    ]
    if rows and not found:
        return Reading(None, None, f"{why_no_nvml}; nvidia-smi says {rows[0][0]!r}")
    return Reading(tuple(found), "nvidia-smi")


def _from_row(index: int, row: dict[str, str], holding: dict[str, dict[int, int | None]]) -> Gpu:
    capability = row.get("compute_cap", "")
    return Gpu(
        index=index,
        uuid=row["uuid"],
        name=row["name"],
        bus_id=row["pci.bus_id"],
        compute_capability=capability if re.fullmatch(r"\d+\.\d+", capability) else None,
        memory_used_mib=_whole(row["memory.used"]),
        memory_total_mib=_whole(row["memory.total"]),
        utilization_pct=_whole(row["utilization.gpu"]),
        power_w=_decimal(row["power.draw"]),
        driver=row["driver_version"],
        processes=tuple(sorted(holding.get(row["uuid"], {}).items())),
        power_limit_w=_decimal(row.get("power.limit", "")),
        minor=minor_of(row["pci.bus_id"], index),
    )


def minor_of(bus_id: str, index: int) -> int:
    """The N of /dev/nvidiaN from the kernel module's own list, or else the index."""
    folder = f"{procfs.PROC}/driver/nvidia/gpus/{pcie.name(bus_id)}"
    try:
        with open(f"{folder}/information", encoding="utf-8") as file:
            match = re.search(r"^Device Minor:\s*(\d+)", file.read(), re.MULTILINE)
    except (OSError, ValueError):
        return index
    return int(match.group(1)) if match else index


def _smi(query: str) -> list[list[str]] | str:
    """The rows of one query, or why there are none."""
    from sglangctl.proc import command

    if not any(
        os.access(os.path.join(folder, "nvidia-smi"), os.X_OK) for folder in os.get_exec_path()
    ):
        return "not installed"
    result = command.run(["nvidia-smi", query, "--format=csv,noheader,nounits"], SMI_TIMEOUT_S)
    if not result.ok:
        return (result.stdout.strip() or result.stderr.strip() or "failed")[:300]
    return [
        [word.strip() for word in line.split(",")] for line in result.stdout.splitlines() if line
    ]


def _whole(text: str) -> int | None:
    number = _decimal(text)
    return None if number is None else int(number)


def _decimal(text: str) -> float | None:
    """A number of nvidia-smi; None for `[N/A]`, `[Not Supported]` and the like."""
    return float(text) if re.fullmatch(r"[0-9]{1,18}(\.[0-9]+)?", text) else None
