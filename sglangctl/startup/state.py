"""The state of one start: the fold changes it, the verdict is computed from it."""

from __future__ import annotations

from typing import Any

from sglangctl.diagnosis.classify import Context
from sglangctl.diagnosis.outcomes import ORDER
from sglangctl.startup.failures import Failures
from sglangctl.startup.launched import Launched
from sglangctl.startup.loglines import Splitter
from sglangctl.startup.motion import Motion
from sglangctl.startup.phases import Phases
from sglangctl.startup.progress import Work
from sglangctl.startup.proof import Proof
from sglangctl.startup.ranks import STOPPED_S, Ranks
from sglangctl.startup.service import WORKING_S, Service
from sglangctl.startup.warm import Warm
from sglangctl.state.config import Limits


class State:
    """The parts that events change, and what several of them have in common."""

    def __init__(self, limits: Limits | None = None) -> None:
        self.limits = limits or Limits()
        self.now = 0.0
        self.launched = Launched()
        self.lines = Splitter()
        self.phases = Phases()
        self.work = Work()
        self.failures = Failures()
        self.ranks = Ranks()
        self.motion = Motion()
        self.service = Service()
        self.proof = Proof()
        self.served = False
        """It served at some time, in this or an earlier state ..."""
        self.served_t: float | None = None
        """... first at this time."""
        self.stop_asked = False
        """Somebody ended it on purpose (a step event says so) ..."""
        self.stop_by = ""
        """... and who, where that is known."""
        self.exit: dict[str, Any] | None = None
        self.gpus: list[tuple[float, float]] = []
        """Memory used and total of each GPU, MiB, in the last GPU event."""
        self.gpu_busy_t: float | None = None
        self.cores_t: float | None = None
        self.unreadable: dict[str, str] = {}
        """Files that are there and closed to the engine's user, and why."""
        self.damaged: list[str] = []
        """Files of the model that are not whole, and what is wrong with each."""
        self.compiled: tuple[float, tuple[str, ...]] | None = None
        """When a compiler was last seen at work, and which."""
        self.compiling_since = 0.0
        """When the first of those that have followed one another was seen."""
        self.warm = Warm()

    @property
    def stopped_t(self) -> float | None:
        """Since when a process is stopped or the cgroup frozen, as far as the looks tell."""
        return self.ranks.stopped_t

    @property
    def stopped(self) -> bool:
        """Whether it is certain that a process is stopped: another look saw it, or none came."""
        since = self.stopped_t
        return since is not None and (self.ranks.stopped_sure or self.now >= since + STOPPED_S)

    @property
    def compiling(self) -> tuple[str, ...]:
        """Which compilers were at work a moment ago."""
        at_work = self.compiled is not None and self.now - self.compiled[0] <= WORKING_S
        return self.compiled[1] if self.compiled is not None and at_work else ()

    def compiles(self, t: float, what: tuple[str, ...]) -> None:
        """Compilers, or caches that grow, were seen at work."""
        if self.compiled is None or t - self.compiled[0] > WORKING_S:
            self.compiling_since = t
        self.compiled = (t, what)

    @property
    def context(self) -> Context:
        """What the classification of a line depends on."""
        return Context(
            phase=self.phases.name,
            drafter_path=self.launched.drafter_path,
            tokenizer_path=self.launched.tokenizer
            if self.launched.tokenizer != self.launched.model
            else None,
            loading_drafter=self.phases.model == "drafter",
            unreadable=self.unreadable,
        )

    def advanced(self, changed: bool) -> None:
        """The phase may have changed: then earlier complaints were not the end."""
        if changed:
            self.failures.advance()
            if ORDER[self.phases.name] > ORDER["loading"]:
                self.work.end()

    def moved(self, t: float, what: str) -> None:
        """Something counts as motion; the first sign of life ends `launching`."""
        self.motion.moved(t, what)
        self.phases.at_least(t, "importing")

    def server_args(self, line: str) -> None:
        """The engine's own account of its arguments."""
        self.launched.server_args(line)
        self.shape()

    def rolled(self, t: float) -> None:
        """The engine calls itself ready; true only if the port is its own."""
        if self.service.identified and not self.failures.crash:
            self.serving(t, "the engine says that it is ready")

    def shape(self) -> None:
        """What is known of the launch, handed to those who count by it."""
        self.phases.world = self.ranks.world = self.launched.world
        self.phases.drafter = self.launched.drafter
        self.work.weights_bytes = self.launched.weights_bytes

    def serving(self, t: float, proof: str) -> None:
        """It serves, by this proof (where there is a new one)."""
        if self.failures.crash is not None or self.exit is not None:
            return
        if proof:
            self.service.good(t, proof)
        self.served = True
        self.served_t = t if self.served_t is None else self.served_t
        self.work.end()
        self.advanced(self.phases.at_least(t, "serving"))

    @property
    def working_t(self) -> float | None:
        """When there was last a sign that the engine computes; None without any.

        All processor time flat for 10 s, GPUs at 0 %: whatever is connected, it does not.
        """
        motion = self.motion
        if motion.cpu_known and not motion.gpu_busy and self.now - motion.cpu_last > 10.0:
            return None
        compiled_t = self.compiled[0] if self.compiled is not None else None
        signs = (self.gpu_busy_t, self.cores_t, self.service.clients_t, compiled_t)
        return max((sign for sign in signs if sign is not None), default=None)
