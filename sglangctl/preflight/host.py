"""The machine: room on its disks, memory, its C library, a reboot that waits."""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from sglangctl.diagnosis.finding import FAIL, INFO, WARN, Finding
from sglangctl.preflight import upgrades
from sglangctl.preflight.catalog import finding
from sglangctl.preflight.versions import parts
from sglangctl.state.config import EngineConfig
from sglangctl.state.paths import Paths
from sglangctl.util.values import mapping, whole

GLIBC = ((0, 5, 23), (2, 34))
"""The first SGLang known to need it (its wheel is manylinux_2_34), and the version."""
PYTHON = ((0, 5, 23), (3, 11))
"""The same of Python."""
SHM_MIB = 512
VENV_MIB = 12 * 1024
"""An environment of SGLang with torch for CUDA took 7.6 GB, and pip unpacks beside it."""
CACHE_MIB = 4 * 1024
LOWEST_MIB = 256
"""Below this a disk counts as full: compiled kernels and a log do not fit."""
PROCESS_MIB = 1024
"""Resident memory of one of the engine's processes beside mapped weights (0.64 to 0.74 GB were
measured for each on a CPU)."""


def folders(engine: str) -> dict[str, int]:
    """Folder that an engine fills -> MiB that should be free for it."""
    return {
        "/opt/sglang/venvs": VENV_MIB,
        f"/var/cache/sglang/{engine}": CACHE_MIB,
        f"/var/log/sglang/{engine}": LOWEST_MIB,
        f"/var/lib/sglangctl/{engine}": LOWEST_MIB,
    }


def look(
    engine: EngineConfig, facts: Mapping[str, Any], paths: Paths, weights: int = 0
) -> Iterator[Finding]:
    """Findings on the machine of the probe's document. `weights`: bytes of all tensors; 0: unknown."""
    yield from disks(engine, mapping(facts.get("disks")))
    yield from memory(engine, facts, weights)
    yield from libc(engine, _libc())
    yield from python(engine)
    yield from shared_memory(engine, paths.root / "dev/shm")
    yield from reboot(paths.root / "run/reboot-required")
    if engine.preflight.device != "cpu":
        yield from upgrades.look(paths.root)


def disks(engine: EngineConfig, known: Mapping[str, Any]) -> Iterator[Finding]:
    """`known`: folder -> as the probe's `disks`; one line a file system."""
    told = set()
    for folder, wanted in folders(engine.name).items():
        disk = mapping(known.get(folder))
        free, device = whole(disk.get("free_mib")), disk.get("device")
        if free is None:
            continue
        fix = f"make room: du -xh -d 2 {folder}"
        needed = f"{wanted / 1024:.1f} GiB" if wanted >= 1024 else f"{wanted} MiB"
        if disk.get("read_only") is True:
            level, seen = FAIL, f"the file system of {folder} is read-only"
            fix, needed = "dmesg | tail says why", ""
        elif free < LOWEST_MIB:
            level, seen = FAIL, f"{free} MiB are free for {folder}"
        elif disk.get("free_inodes") == 0:
            level, seen = FAIL, f"no inode is free for {folder}"
            fix, needed = f"remove small files: du -x --inodes -d 2 {folder}", ""
        elif free < wanted:
            level, seen = WARN, f"{free / 1024:.1f} GiB are free for {folder}"
        else:
            continue
        if (device, level) not in told:
            told.add((device, level))
            yield finding("disk-full", level, seen, fix, needed)


def memory(engine: EngineConfig, facts: Mapping[str, Any], weights: int = 0) -> Iterator[Finding]:
    """Weights are mapped, and their pages can be let go: they need no memory of their own."""
    known = mapping(facts.get("memory"))
    available = whole(known.get("available_mib"))
    processes = engine.tensor_parallel + 2
    if available is None:
        return
    if available < processes * PROCESS_MIB:
        yield finding(
            "host-memory",
            WARN,
            f"{available / 1024:.1f} GiB of memory are available for {processes} processes",
            "sglangctl holders; ps aux --sort=-rss | head",
            f"{processes * PROCESS_MIB / 1024:.0f} GiB beside the weights, which are only mapped",
        )
    total = whole(known.get("total_mib"))
    if total is not None and weights >> 20 > total:
        yield finding(
            "host-memory",
            INFO,
            f"{total / 1024:.0f} GiB of memory are less than the weights ({weights / 2**30:.0f} GiB): "
            "each start reads them from the disk",
        )
    used = (whole(known.get("swap_total_mib")) or 0) - (whole(known.get("swap_free_mib")) or 0)
    if used > PROCESS_MIB:
        seen = f"{used / 1024:.1f} GiB are swapped out: what was swapped is slow when it is needed"
        yield finding("host-swap", INFO, seen)


def libc(engine: EngineConfig, found: tuple[int, ...] | None) -> Iterator[Finding]:
    since, lowest = GLIBC
    if found and parts(engine.version) >= since and found < lowest:
        yield finding(
            "host-glibc",
            FAIL,
            f"glibc is {'.'.join(map(str, found))}",
            "take a host with a newer distribution (Debian 12, Ubuntu 22.04)",
            f"{'.'.join(map(str, lowest))} or newer for SGLang {engine.version}",
        )


def python(engine: EngineConfig) -> Iterator[Finding]:
    """By the name that the interpreter's links end in: it is not run."""
    since, lowest = PYTHON
    program = shutil.which(engine.preflight.python)
    named = re.fullmatch(r"python(3\.\d+)", Path(os.path.realpath(program or "")).name)
    if named and parts(engine.version) >= since and parts(named[1]) < lowest:
        yield finding(
            "host-python",
            FAIL,
            f"{engine.preflight.python} is Python {named[1]}",
            "install a newer Python, and name it: `install: {python: python3.12}`",
            f"{'.'.join(map(str, lowest))} or newer for SGLang {engine.version}",
        )


def shared_memory(engine: EngineConfig, folder: Path) -> Iterator[Finding]:
    """NCCL's ranks exchange data through /dev/shm where they have no peer-to-peer access."""
    if engine.tensor_parallel < 2 or engine.preflight.device == "cpu":
        return
    try:
        found = os.statvfs(folder)
    except OSError:
        return  # another root (tests): every Linux has it
    free = found.f_bavail * found.f_frsize >> 20
    if free < SHM_MIB:
        yield finding(
            "host-shm",
            WARN,
            f"{free} MiB are free in {folder}",
            f"ls -lS {folder} | head; mount -o remount,size=50% {folder}",
            f"{SHM_MIB} MiB",
        )


def reboot(file: Path) -> Iterator[Finding]:
    """What Debian and Ubuntu leave when an upgrade asks for one."""
    if not file.exists():
        return
    try:
        names = file.with_name("reboot-required.pkgs").read_text("utf-8", "replace").split()
    except OSError:
        names = []
    of_driver = any("nvidia" in name for name in names)
    what = " (of NVIDIA's driver)" if of_driver else ""
    yield finding(
        "reboot-pending",
        WARN,
        f"an upgrade{what} waits for a reboot: the next start may meet other libraries",
        "reboot before the deploy, when nobody needs the host",
    )


def _libc() -> tuple[int, ...] | None:
    """Of this process; None where the C library is another than glibc."""
    try:
        version = os.confstr("CS_GNU_LIBC_VERSION") or ""
    except (ValueError, OSError):
        return None
    return parts(version)[:2] or None
