"""/proc, read as data: a process that ends meanwhile counts as absent."""

from __future__ import annotations

import os
import re
import time
from collections.abc import Iterator
from dataclasses import dataclass

PROC = "/proc"
TICKS = os.sysconf("SC_CLK_TCK")
PAGE = os.sysconf("SC_PAGE_SIZE")
DEAD = frozenset("ZXx")
"""States of a process that has ended."""
STOPPED = "T"
"""State of one that SIGSTOP stopped. (`t` is a debugger's or a profiler's doing, and passes.)"""
LIMIT = 128 * 1024
"""Bytes that are read of a file of another process. How much its command line and environment
hold is that process's own choice (PR_SET_MM_MAP: gigabytes, of no memory of its own)."""
WORDS = 4096
"""Words of a command line that are looked at."""
OF_THE_KERNEL = frozenset(["maps", "mountinfo", "mounts", "smaps"])
"""Files whose end matters, in the kernel's words: at most KERNEL_LIMIT bytes."""
KERNEL_LIMIT = 16 * 2**20


@dataclass(frozen=True)
class Stat:
    """Of /proc/PID/stat. `start` (clock ticks since boot) with `pid` names one process."""

    pid: int
    comm: str
    state: str
    ppid: int
    pgid: int
    session: int
    cpu_s: float
    start: int
    rss_mib: float
    wait_status: int = 0
    """Of a zombie, as waitpid(2) has it; 0 also where this user may not read it."""


def pids() -> Iterator[int]:
    """All process ids."""
    for entry in os.listdir(PROC):
        if entry.isdecimal():
            yield int(entry)


def stat(pid: int) -> Stat | None:
    """None when the process is gone. comm may hold spaces and brackets: split at the last one."""
    data = read_bytes(pid, "stat")
    if data is None:
        return None
    head, _, tail = data.rpartition(b")")
    values = tail.split()
    if len(values) < 22:
        return None
    return Stat(
        pid=pid,
        comm=head.partition(b"(")[2].decode("utf-8", "backslashreplace"),
        state=values[0].decode(),
        ppid=int(values[1]),
        pgid=int(values[2]),
        session=int(values[3]),
        cpu_s=(int(values[11]) + int(values[12])) / TICKS,
        start=int(values[19]),
        rss_mib=int(values[21]) * PAGE / 2**20,
        wait_status=int(values[49]) if len(values) > 49 else 0,
    )


def age_s(pid: int) -> float | None:
    """Seconds since a process was started; None when it is gone."""
    found = stat(pid)
    if found is None:
        return None
    return time.clock_gettime(time.CLOCK_BOOTTIME) - found.start / TICKS


def cmdline(pid: int) -> list[str]:
    """argv; empty for a zombie, a kernel thread or a process that is gone.

    A process that retitled itself (setproctitle) has its title here as one element.
    """
    data = read_bytes(pid, "cmdline") or b""
    words = data.decode("utf-8", "backslashreplace").split("\0", WORDS)[:WORDS]
    while words and not words[-1]:
        words.pop()
    return words


def read_text(pid: int, name: str) -> str | None:
    """/proc/PID/NAME as text, None when it cannot be read."""
    data = read_bytes(pid, name)
    return None if data is None else data.decode("utf-8", "backslashreplace")


def read_bytes(pid: int, name: str) -> bytes | None:
    """The first LIMIT bytes of /proc/PID/NAME (KERNEL_LIMIT of those in OF_THE_KERNEL), None when
    it cannot be read (gone, or not permitted). Of words with a NUL behind each (cmdline,
    environ) no piece of one comes."""
    limit = KERNEL_LIMIT if name in OF_THE_KERNEL else LIMIT
    try:
        with open(f"{PROC}/{pid}/{name}", "rb") as file:
            data = file.read(limit)
    except OSError:
        return None
    return data[: data.rfind(b"\0") + 1] or data if len(data) == limit else data


def uid(pid: int) -> int | None:
    """The real user id of a process. (The owner of /proc/PID is root's for one that is not
    dumpable, whoever runs it.)"""
    match = re.search(r"^Uid:\s+(\d+)", read_text(pid, "status") or "", re.MULTILINE)
    return int(match.group(1)) if match else None


def links(pid: int) -> Iterator[str]:
    """The targets of /proc/PID/fd/*: paths, `socket:[inode]`, ..."""
    folder = f"{PROC}/{pid}/fd"
    try:
        entries = os.listdir(folder)
    except OSError:
        return
    for entry in entries:
        try:
            yield os.readlink(f"{folder}/{entry}")
        except OSError:
            continue


def read_io_bytes(pid: int) -> int | None:
    """Bytes that the process fetched through read(2) and from storage: the larger of the two."""
    text = read_text(pid, "io")
    if text is None:
        return None
    values = dict(line.split(": ", 1) for line in text.splitlines() if ": " in line)
    try:
        return max(int(values["rchar"]), int(values["read_bytes"]))
    except (KeyError, ValueError):
        return None


def boot_token() -> str:
    """One boot: boot_id plus the start of PID 1 (a container's reboot keeps boot_id)."""
    first = stat(1)
    try:
        with open(f"{PROC}/sys/kernel/random/boot_id", encoding="ascii") as file:
            boot = file.read().strip()
    except OSError:
        boot = "unknown"
    return f"{boot}+{first.start if first else 0}"
