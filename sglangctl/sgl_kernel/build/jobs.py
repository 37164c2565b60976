"""How many compilers at once: from memory, not from cores. Pure.

One nvcc job of these sources takes 3 to 5 GiB (CUTLASS templates; flash-attention's own
measurements and sglang's reports agree); its threads share out architectures, and one is built. A build
that is given one job per core takes the host down; one that is given too few is only slow.
"""

from __future__ import annotations

from dataclasses import dataclass

RESERVE_MIB = 8 * 1024
"""Left to everything else on the host, the running engine first."""
JOB_MIB = 5 * 1024
"""Of one compiler: the upper end of what was seen."""


@dataclass(frozen=True)
class Room:
    """Memory that a build may have, in MiB, and where the number comes from."""

    available_mib: int
    source: str


@dataclass(frozen=True)
class Jobs:
    """`jobs` compilers at once; `memory_max_mib` bounds the whole build; `reason` holds
    the numbers."""

    jobs: int
    memory_max_mib: int
    reason: str


def room(mem_available_mib: int, cgroup_mib: int | None) -> Room:
    """The smaller of MemAvailable and what the cgroup still allows (None: no limit)."""
    if cgroup_mib is not None and cgroup_mib < mem_available_mib:
        return Room(cgroup_mib, "the cgroup's limit")
    return Room(mem_available_mib, "MemAvailable")


def plan(have: Room, cores: int, wanted: int | None = None) -> Jobs:
    """clamp((available - reserve) / memory of a job, 1, cores); `wanted` jobs are taken as they
    are (the halving after a killed compiler is the net below)."""
    fit = (have.available_mib - RESERVE_MIB) // JOB_MIB
    jobs = max(1, min(fit, cores)) if wanted is None else max(1, wanted)
    numbers = (
        f"{have.available_mib / 1024:.1f} GiB available ({have.source}), "
        f"{RESERVE_MIB // 1024} GiB kept back, {JOB_MIB // 1024} GiB per job, {cores} cores"
    )
    how = "as the inventory says" if wanted is not None else "from memory"
    return Jobs(jobs, memory_max(have), f"{jobs} job(s) {how}: {numbers}")


def memory_max(have: Room) -> int:
    """The unit's MemoryMax in MiB: half of the reserve stays out of reach; on a small host a
    quarter of what is available."""
    return max(have.available_mib - RESERVE_MIB // 2, have.available_mib * 3 // 4, 256)


def fewer(jobs: int) -> int | None:
    """After a compiler was killed for memory: half as many; None below one."""
    return jobs // 2 if jobs > 1 else None
