"""The fold itself: takes events one by one, changes the state, gives the verdict."""

from __future__ import annotations

import math
from typing import Any

from sglangctl.startup import logreader, verdict
from sglangctl.startup.assessment import Assessment
from sglangctl.startup.failures import Crash
from sglangctl.startup.loglines import bar
from sglangctl.startup.state import State
from sglangctl.state.config import Limits
from sglangctl.systemd.unit_failure import spawn_step
from sglangctl.util.values import mappings, number, printable, text, texts, whole

_FLUSH_S = 0.5
"""A line that has not ended for this long is read as it is."""
_CORES = 1.3
"""A process above this many cores computes; an idle scheduler spins on one."""
_UTILIZATION_PCT = 5.0


class Startup(State):
    """One start of one engine, from its launch on; see the package's docstring for the events."""

    def __init__(self, limits: Limits | None = None) -> None:
        super().__init__(limits)
        self.judge = verdict.Judge()

    def feed(self, event: dict[str, Any]) -> Assessment:
        """Take one event and say how the start is doing. Never raises, whatever it holds."""
        t = number(event.get("t"))
        if t is not None and t > self.now:
            self.now = t
        kind = event.get("kind")
        handler = _KINDS.get(kind) if isinstance(kind, str) else None
        if handler is not None and not (self.launched.other_engine and kind != "launch"):
            self._flush_old()
            handler(self, self.now, event)
            self._port_is_held()
        return self.judge.assess(self)

    def tick(self, t: float) -> Assessment:
        """Time has passed without an event: `t` seconds since launch."""
        if math.isfinite(t) and t > self.now:
            self.now = t
        self._flush_old()
        self._port_is_held()
        return self.judge.assess(self)

    @property
    def due(self) -> float | None:
        """The t at which the verdict may change by time alone; None when it cannot."""
        return self.judge.due(self)

    # Events.

    def _port_is_held(self) -> None:
        """The engine would find that out only after the whole load, and end two minutes later."""
        by = self.service.held(self.now, self.limits.port_held_s)
        if by and not self.served and self.failures.crash is None and self.exit is None:
            what = f"port {self.launched.port or ''}".strip()
            self.failures.died(Crash(self.now, "held", f"{what} is held by {by}"))

    def _flush_old(self) -> None:
        lines = self.lines
        if lines.tail and self.now - lines.tail_t >= _FLUSH_S:
            for line in lines.flush():
                logreader.read(self, self.now, line)

    def _launch(self, t: float, event: dict[str, Any]) -> None:
        self.launched.event(event)
        self.shape()

    def _log(self, t: float, event: dict[str, Any]) -> None:
        data = event.get("data")
        if not isinstance(data, str) or not data:
            return
        for line in self.lines.feed(t, data):
            logreader.read(self, t, line)
        if self.lines.begun and "%" in self.lines.tail:
            # A bar ends with its carriage return only when the next state is written.
            shown = bar(self.lines.tail)
            if shown is not None:
                logreader.bar(self, t, shown)

    def _http(self, t: float, event: dict[str, Any]) -> None:
        if self.service.http(t, event, self.served):
            self.serving(t, "")

    def _gpu(self, t: float, event: dict[str, Any]) -> None:
        gpus = mappings(event.get("gpus"))
        if not gpus:
            return
        used: list[float] = []
        total: list[float] = []
        ours = all(number(gpu.get("ours_mib")) is not None for gpu in gpus)
        busy = False
        for gpu in gpus:
            used.append(number(gpu.get("ours_mib" if ours else "memory_used_mib")) or 0.0)
            total.append(number(gpu.get("memory_total_mib")) or 0.0)
            busy |= (number(gpu.get("utilization_pct")) or 0.0) >= _UTILIZATION_PCT
        self.gpus = list(zip(used, total))
        self.motion.gpu(t, used, busy)
        if busy:
            self.gpu_busy_t = t
        if not self.served:
            self.advanced(self.phases.gpu(t, used, total, ours))

    def _process(self, t: float, event: dict[str, Any]) -> None:
        ranks = self.ranks
        ranks.feed(t, event)
        if isinstance(event.get("processes"), list):
            working = ranks.compilers.working
            if working:
                self.compiles(t, working)
            self.motion.processes(t, ranks.cpu_s, ranks.read_bytes, working, ranks.running)
            self.work.read(t, ranks.read_bytes)
            if ranks.cpu_s > 0:
                self.phases.at_least(t, "importing")
            if ranks.cores >= _CORES:
                self.cores_t = t
            if ranks.lost and not self.service.stopping and not self.stop_asked:
                self.failures.died(Crash(t, "process", ranks.lost[0]))
            elif not ranks.lost and self.judge.undecided:
                self.failures.take_back()

    def _socket(self, t: float, event: dict[str, Any]) -> None:
        if (number(event.get("clients")) or 0.0) > 0:
            self.service.clients_t = t
        if self.service.socket(t, event, self.launched.port):
            self.advanced(self.phases.at_least(t, "warming"))

    def _warm(self, t: float, event: dict[str, Any]) -> None:
        self.warm.walks(event)

    def _cache(self, t: float, event: dict[str, Any]) -> None:
        names = [printable(name, 80) for name in texts(event.get("grown"))]
        if names:
            self.compiles(t, tuple(f"{name} grows" for name in names))

    def _generate(self, t: float, event: dict[str, Any]) -> None:
        self.service.list_models(event)
        self.warm.walked(event)
        floor = number(event.get("min_accept_length"))
        if floor is not None:
            self.launched.min_accept_length = floor
        if self.proof.feed(t, event) and self.service.identified:
            self.serving(t, "a generation came back")

    def _exit(self, t: float, event: dict[str, Any]) -> None:
        for line in self.lines.flush():
            logreader.read(self, t, line)
        if self.exit is None:
            self.exit = event
        code = whole(event.get("returncode"))
        shown = "an unknown status" if code is None else f"status {spawn_step(code) or code}"
        self.failures.died(Crash(t, "exit", f"the main process ended with {shown}", code))

    def _file(self, t: float, event: dict[str, Any]) -> None:
        path, damage = text(event.get("path")), text(event.get("damage"))
        if damage and len(self.damaged) < 64:
            named = path is not None and damage.startswith(path)
            self.damaged.append(damage if named else f"{path}: {damage}")
        elif path and event.get("readable") is False and len(self.unreadable) < 64:
            self.unreadable[path] = text(event.get("why")) or "it exists and cannot be read"

    def _step(self, t: float, event: dict[str, Any]) -> None:
        if text(event.get("step")) == "stop":
            self.stop_asked = True
            self.stop_by = text(event.get("by")) or self.stop_by


_KINDS = {
    "launch": Startup._launch,
    "log": Startup._log,
    "http": Startup._http,
    "gpu": Startup._gpu,
    "process": Startup._process,
    "socket": Startup._socket,
    "warm": Startup._warm,
    "cache": Startup._cache,
    "generate": Startup._generate,
    "exit": Startup._exit,
    "file": Startup._file,
    "step": Startup._step,
}
