"""How much memory this host and this cgroup have left, and what a process tree uses."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

from sglangctl.proc import procfs

MIB = 2**20
UNLIMITED = 2**60
"""cgroup v1 writes a number near 2**63 for "no limit"."""


def available_mib(meminfo: Path = Path("/proc/meminfo")) -> int:
    """MemAvailable of /proc/meminfo; OSError or ValueError on a machine without it."""
    for line in meminfo.read_text().splitlines():
        if line.startswith("MemAvailable:"):
            return int(line.split()[1]) // 1024
    raise ValueError(f"{meminfo} has no MemAvailable")


def room_mib() -> int | None:
    """MemAvailable of this machine; None where it cannot be told."""
    try:
        return available_mib()
    except (OSError, ValueError):
        return None


def cgroup_room_mib(cgroups: str | None = None, root: Path = Path("/sys/fs/cgroup")) -> int | None:
    """The least room among this process's memory cgroup and those above it; None: no limit.

    `cgroups` is the text of /proc/self/cgroup. Page cache that can be dropped counts as room.
    """
    text = procfs.read_text(os.getpid(), "cgroup") if cgroups is None else cgroups
    rooms = [_room(folder) for folder in _folders(text or "", root)]
    known = [value for value in rooms if value is not None]
    return min(known) // MIB if known else None


def tree_rss_mib(session: int) -> tuple[float, float]:
    """(sum, largest) resident memory in MiB of the processes of one session."""
    sizes = [
        stat.rss_mib
        for pid in procfs.pids()
        if (stat := procfs.stat(pid)) is not None and stat.session == session
    ]
    return sum(sizes), max(sizes, default=0.0)


def _folders(text: str, root: Path) -> Iterator[Path]:
    for line in text.splitlines():
        _, controllers, path = [*line.split(":", 2), "", ""][:3]
        if "memory" in controllers.split(","):
            base = root / "memory"
        elif controllers == "":
            base = root if (root / "cgroup.controllers").exists() else root / "unified"
        else:
            continue
        folder = base / path.lstrip("/")
        if not folder.is_dir():
            # A container with the host's cgroup names sees its own cgroup as the root.
            folder = base
        while True:
            yield folder
            if folder == base:
                break
            folder = folder.parent


def _room(folder: Path) -> int | None:
    for limit_name, usage_name, cache in (
        ("memory.max", "memory.current", "inactive_file"),
        ("memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file"),
    ):
        try:
            limit = (folder / limit_name).read_text().strip()
            usage = int((folder / usage_name).read_text())
            stat = (folder / "memory.stat").read_text()
        except (OSError, ValueError):
            continue
        if limit == "max" or int(limit) >= UNLIMITED:
            return None
        droppable = next(
            (int(line.split()[1]) for line in stat.splitlines() if line.startswith(f"{cache} ")), 0
        )
        return max(0, int(limit) - usage + min(droppable, usage))
    return None
