"""The engine's processes: state, processor time, bytes read, memory; and which are its ranks."""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from sglangctl.diagnosis import titles
from sglangctl.masking.text import mask_argv
from sglangctl.proc import procfs
from sglangctl.proc.procfs import DEAD, STOPPED

MOST = 1024
"""Processes of an engine that are looked at: those of the look before, then the oldest of the others.
An engine of 8 ranks that compiles on 128 cores has some 500."""
NAME_KEPT = 90
"""Characters of a title or command line that an event keeps."""


@dataclass(frozen=True)
class Process:
    """One look at one process. `read_bytes` None: not permitted."""

    pid: int
    name: str
    state: str
    cpu_s: float
    read_bytes: int | None
    rss_mib: float
    start: int
    exit_code: int | None = None
    """Of a zombie that did not end well, negative for a signal; None: unknown."""
    ppid: int = 0

    def event(self) -> dict[str, Any]:
        """One entry of a `process` event."""
        ended = {} if self.exit_code is None else {"exit_code": self.exit_code}
        return {
            "pid": self.pid,
            "name": self.name,
            "state": self.state,
            "cpu_s": round(self.cpu_s, 2),
            "read_bytes": self.read_bytes,
            "rss_mib": round(self.rss_mib),
            "ppid": self.ppid,
            "start": self.start,
            **ended,
        }

    @property
    def is_rank(self) -> bool:
        return self.name.startswith(titles.SCHEDULER)

    @property
    def is_essential(self) -> bool:
        """The engine cannot answer without it."""
        return self.name.startswith(titles.ESSENTIAL)


class Collector:
    """Looks at processes again and again, and remembers names: a zombie has lost its own."""

    def __init__(self) -> None:
        self._names: dict[tuple[int, int], str] = {}
        self._before: dict[int, int] = {}
        """Pid -> start time of the last look's processes."""

    def sample(self, pids: Iterable[int]) -> list[Process]:
        """The processes of `pids` that are there, ascending; our own helpers left out.

        And of the last look's those that are zombies now (a cgroup does not list them, and how they
        ended is known of them alone), and ranks that left the cgroup: they are not dead.
        """
        found: list[Process] = []
        listed = set(pids)
        for pid in self._chosen(listed):
            stat = procfs.stat(pid)
            if stat is None:
                continue
            key = (pid, stat.start)
            if pid not in listed and (
                stat.start != self._before[pid]
                or (
                    stat.state not in DEAD
                    and not self._names.get(key, "").startswith(titles.PREFIX)
                )
            ):
                continue
            argv = procfs.cmdline(pid)
            if is_helper(argv):
                continue
            name = _shown(mask_argv(argv)) or self._names.get(key) or stat.comm
            if argv:
                self._names[key] = name
            found.append(
                Process(
                    pid=pid,
                    name=name,
                    state=stat.state,
                    cpu_s=stat.cpu_s,
                    read_bytes=procfs.read_io_bytes(pid),
                    rss_mib=stat.rss_mib,
                    start=stat.start,
                    exit_code=_exit_code(stat),
                    ppid=stat.ppid,
                )
            )
        self._before = {process.pid: process.start for process in found}
        if len(self._names) > 4096:
            alive = {(process.pid, process.start) for process in found}
            self._names = {key: name for key, name in self._names.items() if key in alive}
        return found

    def _chosen(self, listed: set[int]) -> list[int]:
        """How many children an engine has is its own choice; how long a look takes is not."""
        known = sorted(self._before)
        return sorted([*known, *sorted(listed - set(known))][:MOST])


def is_helper(argv: list[str]) -> bool:
    """Whether this is `sglangctl wait`, which runs in the engine's own cgroup (ExecStartPost)."""
    words = argv[:6]
    if "wait" not in words:
        return False
    program = words[: words.index("wait")]
    return any(
        word == "sglangctl"
        or word.endswith(("/sglangctl", ".pyz"))
        or word.endswith("/sglangctl/__main__.py")
        for word in program
    )


def shape(processes: Iterable[Process]) -> tuple[Any, ...]:
    """What makes a look different from the last one while the engine serves: who is there, under
    which name, and whether one is stopped or dead (R, S and D come and go all the time)."""
    return tuple(
        (process.pid, process.start, process.name, _notable(process.state)) for process in processes
    )


def wrong(processes: Iterable[Process]) -> list[str]:
    """Ranks and detokenizer that are stopped or dead, in words."""
    return [
        f"{process.name} (pid {process.pid}) is {'stopped' if process.state == STOPPED else 'dead'}"
        for process in _own(processes)
        if process.is_essential and (process.state == STOPPED or process.state in DEAD)
    ]


def _own(processes: Iterable[Process]) -> list[Process]:
    """Without what a rank has forked: such a child has its parent's title."""
    processes = list(processes)
    titles = {process.pid: process.name for process in processes if process.is_essential}
    return [process for process in processes if titles.get(process.ppid) != process.name]


def ranks_alive(processes: Iterable[Process]) -> int | None:
    """Schedulers that are not dead; None where no process carries an SGLang title to tell by."""
    processes = _own(processes)
    if not any(process.name.startswith(titles.PREFIX) for process in processes):
        return None
    return sum(process.is_rank and process.state not in DEAD for process in processes)


def in_group_of(pid: int) -> list[int]:
    """All processes of the process group or session of `pid`, and their descendants.

    Where no cgroup marks an engine (containers, Slurm) this is what belongs together.
    """
    table = {stat.pid: stat for stat in map(procfs.stat, procfs.pids()) if stat is not None}
    leader = table.get(pid)
    if leader is None:
        return []
    members = {
        other for other, stat in table.items() if stat.pgid == leader.pgid or (stat.session == pid)
    }
    members.add(pid)
    grown = True
    while grown:
        children = {other for other, stat in table.items() if stat.ppid in members} - members
        members |= children
        grown = bool(children)
    return sorted(members - {os.getpid()})


def _shown(argv: list[str]) -> str:
    """A command line, cut; of a script that Python runs from afar the end of its path."""
    name = " ".join(argv)
    if len(name) > NAME_KEPT and len(argv) > 1 and argv[1].endswith(".py"):
        name = f"{os.path.basename(argv[0])} ...{argv[1][-60:]}"
    return name[:NAME_KEPT]


def _exit_code(stat: procfs.Stat) -> int | None:
    if stat.state not in DEAD or not stat.wait_status:
        return None
    try:
        return os.waitstatus_to_exitcode(stat.wait_status)
    except ValueError:
        return None


def _notable(state: str) -> str:
    if state == STOPPED:
        return "stopped"
    return "dead" if state in DEAD else ""
