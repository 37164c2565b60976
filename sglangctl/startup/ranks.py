"""The engine's processes: which are ranks, which of them stopped, died or are gone.

Ranks and the detokenizer are known by the titles that SGLang gives them (`sglang::scheduler_TP0`,
`sglang::detokenizer`; comm cuts them to 15 characters). A zombie has no command line any more,
so their pids are remembered; other children (compilers, the resource tracker) come and go.

Until its imports are done a rank has the title of any spawned Python process. One that dies before
is a rank, as long as not all of them have shown themselves: at once where its exit status says that
it did not end well, else when nothing took its place for a while.
"""

from __future__ import annotations

from typing import Any

from sglangctl.util.values import number, text, whole

_TITLES = ("sglang::sched", "sglang::detok", "sglang::data_par")
_SPAWNED = "multiprocessing.spawn"
_UNTITLED_S = 10.0
"""For a spawned process that is gone, without a word on how it ended, to be missed."""
_BUILDERS = ("ninja", "nvcc", "cicc", "ptxas", "fatbinary", "cudafe++", "nvlink")
_COMPILERS = frozenset((*_BUILDERS, "cc1plus", "gcc", "g++", "c++", "clang", "clang++", "ld", "as"))
_COMPILES_S = 0.05
"""Processor time by which a compiler must have got on to count as motion."""
_RUNS = 3
"""A waiting process is found in state R now and then, hardly three times on end."""
_MOST_RANKS = 4096
DEAD = "ZXx"
STOPPED = "T"


class Ranks:
    """What process events say about the engine's processes."""

    def __init__(self) -> None:
        self.seen = False
        """Whether there was any process event."""
        self.titles: dict[int, str] = {}
        """Pid and title of every rank and detokenizer that was ever seen alive."""
        self.world: int | None = None
        """How many schedulers there should be, where known."""
        self.lost: tuple[str, ...] = ()
        """Ranks that are gone or zombies, in the last event."""
        self.untitled: dict[int, float | None] = {}
        """Spawned processes seen alive that have no rank's title yet, and since when each is
        dead; None while it lives."""
        self.stopped: tuple[str, ...] = ()
        """Processes in state T, in the last event."""
        self.frozen = False
        self.alive = 0
        """Live schedulers in the last event."""
        self.cpu_s = 0.0
        self.read_bytes = 0.0
        self.compiling = False
        """A compiler began, or got on, since the last event."""
        self._compilers: dict[int, float] = {}
        self.oom_kills = 0
        self.oom_t: float | None = None
        """When the counter of OOM kills last rose."""
        self.cores = 0.0
        """Processor time of the busiest process between the last two events, in cores."""
        self.running = False
        """A process wants the processor: in state R in several events on end, however little
        it gets of a machine that is starved."""
        self._cpu: dict[int, float] = {}
        self._t = 0.0
        self._runs: dict[int, int] = {}

    def feed(self, t: float, event: dict[str, Any]) -> None:
        """Take a process event of time `t`."""
        listed = event.get("processes")
        kills = whole(event.get("oom_kills"))
        if kills is not None and kills > self.oom_kills:
            self.oom_kills, self.oom_t = kills, t
        self.frozen = event.get("frozen") is True
        if not isinstance(listed, list):
            return
        self.seen = True
        states: dict[int, str] = {}
        codes: dict[int, int | None] = {}
        stopped: list[str] = []
        cpu_s = read_bytes = 0.0
        compilers: dict[int, float] = {}
        alive = 0
        cpu: dict[int, float] = {}
        for process in listed:
            if not isinstance(process, dict):
                continue
            pid = whole(process.get("pid"))
            state = text(process.get("state")) or "?"
            name = text(process.get("name")) or ""
            spent = number(process.get("cpu_s")) or 0.0
            cpu_s += spent
            read_bytes += number(process.get("read_bytes")) or 0.0
            if pid is None:
                continue
            letter = state[0]
            states[pid] = letter
            if letter in DEAD:
                codes[pid] = whole(process.get("exit_code"))
            cpu[pid] = spent
            if letter not in DEAD:
                if name.startswith(_TITLES):
                    if len(self.titles) < _MOST_RANKS:
                        self.titles[pid] = name
                    alive += name.startswith("sglang::sched")
                    self.untitled.pop(pid, None)
                elif _SPAWNED in name and len(self.untitled) < _MOST_RANKS:
                    self.untitled[pid] = None
                elif name.split(" ", 1)[0].rpartition("/")[2] in _COMPILERS:
                    compilers[pid] = spent
                if letter == STOPPED:
                    stopped.append(f"{_short(name, pid)} (pid {pid})")
        lost = [
            f"{title} (pid {pid}) is {'a zombie' if pid in states else 'gone'}"
            for pid, title in self.titles.items()
            if states.get(pid, "X") in DEAD
        ]
        lost += self._lost_untitled(t, states, codes)
        self.lost, self.stopped, self.alive = tuple(lost), tuple(stopped), alive
        self.cpu_s, self.read_bytes = cpu_s, read_bytes
        before = self._compilers
        self.compiling = any(
            spent >= before.get(pid, -1.0) + _COMPILES_S for pid, spent in compilers.items()
        )
        self._compilers = compilers
        runs = self._runs
        self._runs = {pid: runs.get(pid, 0) + 1 for pid, state in states.items() if state == "R"}
        self.running = max(self._runs.values(), default=0) >= _RUNS
        if t - self._t >= 0.5:
            used = [spent - self._cpu[pid] for pid, spent in cpu.items() if pid in self._cpu]
            self.cores = max(used, default=0.0) / (t - self._t)
            self._cpu, self._t = cpu, t

    def _lost_untitled(
        self, t: float, states: dict[int, str], codes: dict[int, int | None]
    ) -> list[str]:
        """Ranks that died before they had a title."""
        if not self.untitled:
            return []
        shown = list(self.titles.values())
        ranks = sum(title.startswith("sglang::sched") for title in shown)
        if ranks >= (self.world or 1) and any(t.startswith("sglang::detok") for t in shown):
            self.untitled.clear()
            return []
        lost = []
        for pid, since in self.untitled.items():
            if states.get(pid, "X") not in DEAD:
                continue
            if since is None:
                since = self.untitled[pid] = t
            code = codes.get(pid)
            if code or t - since >= _UNTITLED_S:
                how = "a zombie" if pid in states else "gone"
                how += f" (exit status {code})" if code else ""
                lost.append(f"a rank that had no title yet (pid {pid}) is {how}")
        return lost


def _short(name: str, pid: int) -> str:
    if name.startswith("sglang::"):
        return name
    return "the main process" if "sglang" in name and "spawn" not in name else name[:40] or str(pid)
