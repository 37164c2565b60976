"""The engine's processes: which are ranks, which of them stopped, died or are gone.

Ranks and the detokenizer are known by the titles that SGLang gives them (`sglang::scheduler_TP0`,
`sglang::detokenizer`; comm cuts them to 15 characters). A zombie has no command line any more,
so their pids are remembered; other children (compilers, the resource tracker) come and go.

A child that a rank has just forked has its parent's title for a moment, and some keep it. So one
look decides nothing: a rank is a child of the engine, not of a rank, and was seen again. Where the
events do not tell the parent (older journals), one that is gone was a forked child if a living
process has its title still.

Until its imports are done a rank has the title of any spawned Python process. One that dies before
is a rank, as long as not all of them have shown themselves and the others are too few: at once
where its exit status says that it did not end well, else when nothing took its place for a while.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

from sglangctl.diagnosis import titles
from sglangctl.proc.procfs import DEAD, STOPPED
from sglangctl.startup.compilers import Compilers
from sglangctl.util.values import number, text, whole

_SPAWNED = "multiprocessing.spawn"
_UNTITLED_S = 10.0
"""How long a spawned process must be gone, without an exit status, before it counts as missing."""
STOPPED_S = 3.0
"""State T is believed when the next look shows it too, or after this long without a look."""
_AGAIN_S = 0.4
"""Between two looks for the second to count as another one."""
_RUNS = 3
"""A waiting process is found in state R now and then, hardly three times on end."""
_MOST_RANKS = 4096
_Key = tuple[int, "int | None"]
"""Pid and start time: a pid may be given to another process."""


@dataclass
class _Child:
    """A process that had a rank's title, or may be going to have one."""

    title: str = ""
    """A rank's; empty while it has the command line of a spawned process."""
    forked: bool = False
    """A rank's own child, by its parent's pid."""
    looks: int = 0
    """Looks that found it alive."""
    missed: int = 0
    """Looks on end that did not find it."""
    dead_t: float | None = None
    """Since when it is dead, while it has no title."""


class _Look(NamedTuple):
    """What one event says about one process."""

    pid: int
    name: str
    letter: str
    parent: int | None
    start: int | None
    exit_code: int | None


class Ranks:
    """What process events say about the engine's processes."""

    def __init__(self) -> None:
        self.seen = False
        """Whether there was any process event."""
        self.world: int | None = None
        """How many schedulers there should be, where known."""
        self.lost: tuple[str, ...] = ()
        """Ranks that are gone or zombies, in the last event."""
        self.lost_sure = False
        """One of them is a zombie, was missed twice, or went when the OOM killer was at work."""
        self.stopped: tuple[str, ...] = ()
        """Processes in state T, in the last event."""
        self.stopped_sure = False
        """One of them, or the freezer, was found so twice on end; or all of them are stopped."""
        self.frozen = False
        self.alive = 0
        """Live schedulers in the last event."""
        self.cpu_s = 0.0
        self.read_bytes = 0.0
        self.compilers = Compilers()
        self.oom_kills = 0
        self.oom_t: float | None = None
        """When the counter of OOM kills last rose."""
        self.cores = 0.0
        """Processor time of the busiest process between the last two events, in cores."""
        self.running = False
        """A process wants the processor: in state R in several events on end, however little
        it gets of a machine that is starved."""
        self._children: dict[_Key, _Child] = {}
        self._complete = False
        """Every rank and the detokenizer have shown themselves."""
        self._still: dict[_Key | None, float] = {}
        """Since when a process is in state T; None: the freezer."""
        self._cpu: dict[int, float] = {}
        self._t = 0.0
        self._runs: dict[int, int] = {}

    @property
    def stopped_t(self) -> float | None:
        """Since when one of them is stopped, or the cgroup frozen."""
        return min(self._still.values(), default=None)

    def feed(self, t: float, event: dict[str, Any]) -> None:
        """Take a process event of time `t`."""
        listed = event.get("processes")
        kills = whole(event.get("oom_kills"))
        if kills is not None and kills > self.oom_kills:
            self.oom_kills, self.oom_t = kills, t
        if not isinstance(listed, list):
            return
        self.seen = True
        looks: dict[int, _Look] = {}
        cpu_s = read_bytes = 0.0
        cpu: dict[int, float] = {}
        for process in listed:
            if not isinstance(process, dict):
                continue
            spent = number(process.get("cpu_s")) or 0.0
            cpu_s += spent
            read_bytes += number(process.get("read_bytes")) or 0.0
            pid = whole(process.get("pid"))
            if pid is None:
                continue
            look = looks[pid] = _look(pid, process)
            cpu[pid] = spent
            if look.letter not in DEAD:
                self.compilers.see(pid, look.name, spent)
        self.compilers.end()
        self._meet(looks)
        self._judge(t, looks)
        self._stand(t, looks, event.get("frozen") is True)
        self.cpu_s, self.read_bytes = cpu_s, read_bytes
        runs = self._runs
        wanting = [pid for pid, look in looks.items() if look.letter == "R"]
        self._runs = {pid: runs.get(pid, 0) + 1 for pid in wanting}
        self.running = max(self._runs.values(), default=0) >= _RUNS
        if t - self._t >= 0.5:
            used = [spent - self._cpu[pid] for pid, spent in cpu.items() if pid in self._cpu]
            self.cores = max(used, default=0.0) / (t - self._t)
            self._cpu, self._t = cpu, t

    def _meet(self, looks: dict[int, _Look]) -> None:
        """Ranks, and what may become one, among the living."""
        for look in looks.values():
            if look.letter in DEAD:
                continue
            titled = look.name.startswith(titles.ESSENTIAL)
            if not titled and _SPAWNED not in look.name and not self._children:
                continue
            key = (look.pid, look.start)
            child = self._children.get(key)
            if child is None:
                # Known from a journal that an older watch began, without start times.
                child = self._children.pop((look.pid, None), None)
                if child is None:
                    wanted = titled or (_SPAWNED in look.name and not self._complete)
                    if not wanted or len(self._children) >= _MOST_RANKS:
                        continue
                    child = _Child(forked=_forked(look, looks))
                self._children[key] = child
            if titled and child.title != look.name:
                child.title, child.forked = look.name, _forked(look, looks)
            child.looks += 1

    def _judge(self, t: float, looks: dict[int, _Look]) -> None:
        """Who of them is missing."""
        if not self._children:
            self.lost, self.lost_sure, self.alive = (), False, 0
            return
        here, dead = set(), {}
        told = False
        for look in looks.values():
            told |= look.parent is not None
            if look.letter in DEAD:
                dead[(look.pid, look.start)] = look
            else:
                here.add((look.pid, look.start))
        world = self.world or 1
        shown: dict[str, int] = {}
        untitled = 0
        for key, child in self._children.items():
            if key not in here or child.forked:
                continue
            if not child.title:
                untitled += 1
            elif told or shown.get(child.title, 0) < (
                world if child.title in titles.BARE_SCHEDULER else 1
            ):
                shown[child.title] = shown.get(child.title, 0) + 1
        self.alive = sum(n for title, n in shown.items() if title.startswith(titles.SCHEDULER))
        if self.alive >= world and any(title.startswith(titles.DETOKENIZER) for title in shown):
            self._complete = True
        others = (
            self.alive + untitled + sum(title.startswith(titles.DETOKENIZER) for title in shown)
        )
        lost: list[str] = []
        sure = False
        for key, child in list(self._children.items()):
            if key in here:
                child.missed, child.dead_t = 0, None
                continue
            child.missed += 1
            zombie = dead.get(key)
            if child.title:
                most = world if child.title in titles.BARE_SCHEDULER else 1
                twin = not told and shown.get(child.title, 0) >= most
                if child.forked or twin or (child.looks < 2 and zombie is None):
                    del self._children[key]
                    continue
                lost.append(f"{child.title} (pid {key[0]}) is {'a zombie' if zombie else 'gone'}")
                sure |= zombie is not None or child.missed >= 2
            elif child.forked or self._complete or others > world:
                del self._children[key]
            else:
                child.dead_t = t if child.dead_t is None else child.dead_t
                code = zombie.exit_code if zombie else None
                if code or t - child.dead_t >= _UNTITLED_S:
                    how = "a zombie" if zombie else "gone"
                    how += f" (exit status {code})" if code else ""
                    lost.append(f"a rank that had no title yet (pid {key[0]}) is {how}")
                    sure = True
        self.lost, self.lost_sure = tuple(lost), sure or (bool(lost) and self.oom_t == t)

    def _stand(self, t: float, looks: dict[int, _Look], frozen: bool) -> None:
        """Which processes are stopped, and since when."""
        self.frozen = frozen
        stopped = [look for look in looks.values() if look.letter == STOPPED]
        if not (stopped or frozen or self._still):
            return
        self.stopped = tuple(f"{_short(look.name, look.pid)} (pid {look.pid})" for look in stopped)
        keys: list[_Key | None] = [(look.pid, look.start) for look in stopped]
        if frozen:
            keys.append(None)
        self._still = {key: self._still.get(key, t) for key in keys}
        self.stopped_sure = any(t - since >= _AGAIN_S for since in self._still.values()) or (
            len(stopped) > 1 and len(stopped) == len(looks)
        )


def _look(pid: int, process: dict[str, Any]) -> _Look:
    return _Look(
        pid,
        text(process.get("name")) or "",
        (text(process.get("state")) or "?")[0],
        whole(process.get("ppid")),
        whole(process.get("start")),
        whole(process.get("exit_code")),
    )


def _forked(look: _Look, looks: dict[int, _Look]) -> bool:
    """Whether a process that looks like a rank is a rank's child, not the engine's."""
    parent = looks.get(look.parent) if look.parent is not None else None
    if parent is None or parent.letter in DEAD:
        return False
    if parent.name.startswith(titles.CONTROLLER):
        return look.name == parent.name
    return parent.name.startswith(titles.ESSENTIAL) or _SPAWNED in parent.name


def _short(name: str, pid: int) -> str:
    if name.startswith(titles.PREFIX):
        return name
    return "the main process" if "sglang" in name and "spawn" not in name else name[:40] or str(pid)
