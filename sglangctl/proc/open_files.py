"""Who has what open: one pass over /proc/*/fd for the GPUs' device nodes (and sockets)."""

from __future__ import annotations

import contextlib
import os
import stat
import time
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass

from sglangctl.proc import procfs
from sglangctl.util import lazy_re

DEVICES = "/dev/nvidia"
"""A process in a container shows the path that the node has there: the same one, as a rule."""
NODE = lazy_re.compile(r"(\d+)(?: \(deleted\))?")
MAJOR = 195
"""The driver's own major number: then the minor number tells which GPU, whatever the path."""

MANY = 4096
"""Open files of one process beyond which it is looked at last: an engine of 8 ranks has some hundred."""
LIMIT_S = 3.0


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
    unfinished: tuple[int, ...] = ()
    """Processes with so many files open that there was no time to look at all of them."""


def scan(
    inodes: Iterable[int] = (), pids: Iterable[int] | None = None, limit_s: float = LIMIT_S
) -> Scan:
    """Look at all processes (or `pids`) but ourselves. `inodes`: the sockets of interest.

    How many files are open is everybody's own choice: those with more than MANY come last, and
    after `limit_s` seconds the rest is left out and named.
    """
    end = time.monotonic() + limit_s
    wanted = {f"socket:[{inode}]": inode for inode in inodes}
    found: dict[int, OpenFiles] = {}
    unreadable, own = 0, os.getpid()
    large: list[int] = []
    unfinished: list[int] = []

    def look(pid: int, most: int | None) -> bool:
        """Whether these were all."""
        devices: dict[int, int] = {}
        sockets = set()
        whole = True
        folder = f"{procfs.PROC}/{pid}/fd"
        with os.scandir(folder) as entries:
            for number, entry in enumerate(entries):
                if number == most or (number % 256 == 255 and time.monotonic() > end):
                    whole = False
                    break
                try:
                    target = os.readlink(f"{folder}/{entry.name}")
                except OSError:
                    continue
                if target.startswith(DEVICES):
                    index = _device(f"{folder}/{entry.name}", target[len(DEVICES) :])
                    if index is not None:
                        devices[index] = devices.get(index, 0) + 1
                elif target in wanted:
                    sockets.add(wanted[target])
        if (devices or sockets) and (whole or pid not in found):
            found[pid] = OpenFiles(devices, frozenset(sockets))
        return whole

    for pid in procfs.pids() if pids is None else pids:
        try:
            if pid != own and not look(pid, MANY):
                large.append(pid)
        except PermissionError:
            unreadable += 1
        except OSError:
            continue
    for pid in large:
        with contextlib.suppress(OSError):
            if time.monotonic() > end or not look(pid, None):
                unfinished.append(pid)
    return Scan(found, unreadable, tuple(unfinished))


def not_complete(unfinished: Collection[int]) -> str:
    """What a person is told of a scan's `unfinished`."""
    return (
        f"not complete: process {', '.join(map(str, sorted(unfinished)[:10]))} "
        f"{'has' if len(unfinished) == 1 else 'and its like have'} too many files open to look at all "
        f"of them in {LIMIT_S:g} s"
    )


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
