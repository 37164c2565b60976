"""Who has what open: one pass over /proc/*/fd for the GPUs' device nodes (and sockets)."""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass

from sglangctl.proc import procfs

DEVICES = "/dev/nvidia"
"""A process in a container shows the path that the node has there: the same one, as a rule."""
NODE = re.compile(r"(\d+)(?: \(deleted\))?")
MAJOR = 195
"""The driver's own major number: then the minor number tells which GPU, whatever the path."""


@dataclass(frozen=True)
class OpenFiles:
    """Of one process: the N of each /dev/nvidiaN with how often it is open, and the inodes of
    wanted sockets."""

    devices: Mapping[int, int]
    sockets: frozenset[int]


@dataclass(frozen=True)
class Scan:
    """`found` has only processes with something to tell. `unreadable` is how many there were
    whose open files we may not see (all of other users, when we are not root)."""

    found: dict[int, OpenFiles]
    unreadable: int


def scan(inodes: Iterable[int] = (), pids: Iterable[int] | None = None) -> Scan:
    """Look at all processes (or `pids`) but ourselves. `inodes`: the sockets of interest."""
    wanted = {f"socket:[{inode}]": inode for inode in inodes}
    found: dict[int, OpenFiles] = {}
    unreadable, own, prefix = 0, os.getpid(), DEVICES
    for pid in procfs.pids() if pids is None else pids:
        if pid == own:
            continue
        folder = f"{procfs.PROC}/{pid}/fd"
        try:
            names = os.listdir(folder)
        except PermissionError:
            unreadable += 1
            continue
        except OSError:
            continue
        devices: dict[int, int] = {}
        sockets = set()
        for name in names:
            try:
                target = os.readlink(f"{folder}/{name}")
            except OSError:
                continue
            if target.startswith(prefix):
                number = _device(f"{folder}/{name}", target[len(prefix) :])
                if number is not None:
                    devices[number] = devices.get(number, 0) + 1
            elif target in wanted:
                sockets.add(wanted[target])
        if devices or sockets:
            found[pid] = OpenFiles(devices, frozenset(sockets))
    return Scan(found, unreadable)


def _device(link: str, rest: str) -> int | None:
    """The GPU's device number, None for nvidiactl, nvidia-uvm and the like, and for what has a GPU's
    path and is none: in a mount namespace of their own users have any file at any path."""
    match = NODE.fullmatch(rest)
    if not match:
        return None
    number = int(match.group(1))
    try:
        opened = os.stat(link)
        if not stat.S_ISCHR(opened.st_mode):
            return None
        if os.major(opened.st_rdev) == MAJOR:
            return os.minor(opened.st_rdev)
        # A driver with another major number: the device is the one that we have at this path.
        return number if os.stat(f"{DEVICES}{number}").st_rdev == opened.st_rdev else None
    except OSError:
        return None


def used(opened: Mapping[int, int], memory: Collection[int]) -> set[int]:
    """Which of the GPUs that a process has open it really uses.

    Every CUDA process opens every GPU of the machine, whatever CUDA_VISIBLE_DEVICES says, but the
    hidden ones less often: seen with driver 580 on two H200s were 23 times with a context, 7 times
    without one, 3 times hidden. So where some are open more often than the others, these count,
    and those on which the driver lists its memory; where all are equal, all do.
    """
    least = min(opened.values(), default=0)
    more = {gpu for gpu, times in opened.items() if times > least}
    return (more or set(opened)) | set(memory)
