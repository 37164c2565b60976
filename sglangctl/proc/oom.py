"""Was it the out-of-memory killer? SGLang ends itself with SIGKILL too, so exit status -9 alone proves nothing.

The kernel counts its kills per cgroup (v2 memory.events, v1 memory.oom_control). Where no such
counter exists, the kernel log names the pid.
"""

from __future__ import annotations

import os
import re
import time
from dataclasses import dataclass
from pathlib import Path

from sglangctl.proc import procfs
from sglangctl.proc.cgroup import CGROUP
from sglangctl.util import lazy_re
from sglangctl.util.values import digits

COUNT = lazy_re.compile(r"^oom_kill (\d+)$", re.M)
KILLED = lazy_re.compile(
    r"(?:Out of memory[^:]*: |Memory cgroup out of memory: )?Killed process (\d+) \("
)
XID = lazy_re.compile(
    r"NVRM: Xid \(PCI:(?P<bus>[0-9a-f]{4,8}:[0-9a-f]{2}:[0-9a-f]{2})(?:\.[0-9a-f])?\): "
    r"(?P<number>\d{1,9})",
    re.I,
)
"""Both at a message's beginning: further on there, or in a message about it, a process's name may
stand, which is any 15 characters of its own choice."""
SIGNS = (b"killed process", b"xid")
"""One of them is in every message of both kinds: the other thousands are not looked at further."""
KERNEL = 0
"""The facility of the kernel's own messages; what programs write into its log has another."""
RECORD = 8192
"""Longest record of /dev/kmsg."""


def memory_folder(pid: int, root: Path = CGROUP) -> Path | None:
    """The cgroup that counts the kills of a process: its own, or the nearest above it that counts.

    The counter is of the processes killed, whichever cgroup's limit it was; those further up
    have other units' kills in them as well.
    """
    paths: list[tuple[Path, str]] = []
    for line in (procfs.read_text(pid, "cgroup") or "").splitlines():
        parts = line.split(":", 2)
        if len(parts) != 3:
            continue
        if "memory" in parts[1].split(","):
            paths.insert(0, (root / "memory", parts[2]))
        elif parts[0] == "0" and not parts[1]:
            paths += [(root, parts[2]), (root / "unified", parts[2])]
    for base, path in paths:
        folder = base / path.lstrip("/")
        for place in (folder, *folder.parents):
            if base not in (place, *place.parents):
                break
            if _count(place) is not None:
                return place
    return None


@dataclass(frozen=True)
class Kernel:
    """What the kernel's log says since a launch. Unknown (not readable) is None."""

    killed: tuple[int, ...] | None = None
    xids: tuple[tuple[str, int], ...] = ()
    """PCI address without its function (`0000:c1:00`) and number, the oldest first."""

    @property
    def xid(self) -> int | None:
        return self.xids[-1][1] if self.xids else None


class Counter:
    """Kills in a cgroup since this was made."""

    def __init__(self, folder: Path | None) -> None:
        self._folder = folder
        self._before = None if folder is None else _count(folder)

    def kills(self) -> int | None:
        """None where no cgroup counts (any more)."""
        now = None if self._folder is None else _count(self._folder)
        return None if now is None or self._before is None else now - self._before


def _count(folder: Path) -> int | None:
    for name in ("memory.events", "memory.oom_control"):
        try:
            match = COUNT.search((folder / name).read_text())
        except OSError:
            continue
        if match:
            return int(match.group(1))
    return None


def kernel_log(since: float) -> Kernel:
    """Kills and Xids of the kernel's log since `since` (time.monotonic()); never raises."""
    try:
        device = os.open("/dev/kmsg", os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return Kernel()
    killed: list[int] = []
    xids: list[tuple[str, int]] = []
    end = time.monotonic() + 1.0
    try:
        while time.monotonic() < end:
            try:
                record = os.read(device, RECORD)
            except BlockingIOError:
                break
            except OSError:
                continue  # EPIPE: records were overwritten while we read; the next ones are there
            lower = record.lower()
            if not any(sign in lower for sign in SIGNS):
                continue
            message = message_of(record.decode("utf-8", "backslashreplace"), since)
            match = KILLED.match(message)
            if match:
                killed.append(int(match.group(1)))
            match = XID.match(message)
            if match:
                xids.append((match["bus"].lower(), int(match["number"])))
    finally:
        os.close(device)
    return Kernel(tuple(killed), tuple(xids))


def message_of(record: str, since: float) -> str:
    """The text of a record of /dev/kmsg that the kernel itself wrote since `since`, else ""."""
    head, _, message = record.partition(";")
    fields = head.split(",")
    # Priority and facility, a number, microseconds of the monotonic clock.
    level, time_us = (digits(fields[0]), digits(fields[2])) if len(fields) > 2 else (None, None)
    if level is None or time_us is None or level >> 3 != KERNEL or time_us / 1e6 < since:
        return ""
    return message
