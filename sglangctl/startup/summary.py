"""A start as it is told: the fold's assessment, when each phase began, and the last numbers.

Pure. `status` on the host and the readiness role on the controller feed the same journal to it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from sglangctl.state.journal import Event

if TYPE_CHECKING:  # the fold's many expressions are compiled only where it is used
    from sglangctl.startup import Assessment, Startup


def gpus_of(event: Event | None) -> list[dict[str, Any]]:
    """The list of a gpu event, without what is no GPU."""
    gpus = event.get("gpus") if event else None
    return [gpu for gpu in gpus if isinstance(gpu, dict)] if isinstance(gpus, list) else []


class Story:
    """Feed it a journal's events in their order; times are the journal's, seconds since launch."""

    def __init__(self, fold: Startup) -> None:
        self.fold = fold
        self.view: Assessment | None = None
        self.t = 0.0
        self.gpus: list[dict[str, Any]] = []
        self.gpus_t = 0.0
        """When `gpus` was read."""
        self.ended = False
        """The main process is gone."""
        self.generate: Event | None = None
        self._began: list[tuple[str, float]] = []

    def feed(self, event: Event) -> bool:
        """Take one event in; whether phase, outcome or cause changed."""
        if event["kind"] == "gpu":
            self.gpus, self.gpus_t = gpus_of(event), float(event["t"])
        elif event["kind"] == "generate":
            self.generate = event
        elif event["kind"] == "exit":
            self.ended = True
        self.t = max(self.t, float(event["t"]))
        return self._take(self.fold.feed(event))

    def tick(self, t: float) -> bool:
        """Let time pass without an event; whether phase, outcome or cause changed."""
        self.t = max(self.t, t)
        return self._take(self.fold.tick(self.t))

    def _take(self, view: Assessment) -> bool:
        old, self.view = self.view, view
        if not self._began or self._began[-1][0] != view.phase:
            self._began.append((view.phase, view.t))
        return old is None or (old.phase, old.outcome, old.cause) != (
            view.phase,
            view.outcome,
            view.cause,
        )

    def durations(self) -> dict[str, float]:
        """Seconds in each phase up to now, in order of first appearance; `serving` is no wait."""
        ends = [began for _, began in self._began[1:]] + [self.t]
        total: dict[str, float] = {}
        for (phase, began), end in zip(self._began, ends):
            if phase != "serving":
                total[phase] = total.get(phase, 0.0) + max(0.0, end - began)
        return {phase: round(seconds, 3) for phase, seconds in total.items()}

    def served_after(self) -> float | None:
        """Seconds from launch until it served first."""
        return next((began for phase, began in self._began if phase == "serving"), None)
