"""Summary of a start's journal: the last verdict, the time in each phase, the last numbers.

Pure, and without the fold: the watch has judged already. `status` on the host and the readiness
role on the controller feed the same journal to it.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from sglangctl.startup.assessment import Assessment
from sglangctl.state.journal import Event
from sglangctl.util.values import in_unix, mappings, number


def gpus_of(event: Event | None) -> list[dict[str, Any]]:
    """The list of a gpu event, without what is no GPU."""
    return mappings(event.get("gpus")) if event else []


class Summary:
    """Feed it a journal's events in their order; times are the journal's, seconds since launch."""

    def __init__(self) -> None:
        self.t = 0.0
        self.launched_at: float | None = None
        """Unix seconds, of the host's clock."""
        self.gpus: list[dict[str, Any]] = []
        self.gpus_t = 0.0
        """When `gpus` was read."""
        self.generate: Event | None = None
        self._last: Assessment | None = None
        self._phases: dict[str, float] = {}
        """Seconds in each phase up to the last verdict."""
        self._served_after: float | None = None

    def feed(self, event: Event) -> bool:
        """Take one event in; whether phase, outcome or cause changed."""
        self.t = max(self.t, float(event["t"]))
        if event["kind"] == "gpu":
            self.gpus, self.gpus_t = gpus_of(event), float(event["t"])
        elif event["kind"] == "launch":
            self.launched_at = in_unix(event.get("time"))
        elif event["kind"] == "generate":
            self.generate = event
        elif event["kind"] == "verdict":
            return self._judged(event)
        return False

    def tick(self, t: float) -> None:
        """Time passes without an event."""
        self.t = max(self.t, t)

    @property
    def view(self) -> Assessment | None:
        """The last verdict, its estimate as of now; None before the first."""
        last = self._last
        if last is None or last.eta_s is None:
            return last
        left = last.eta_s - (self.t - last.t)
        return replace(last, eta_s=left) if left > 0 else replace(last, eta_s=None)

    def durations(self) -> dict[str, float]:
        """Seconds in each phase up to now, in order of first appearance; `serving` is no wait."""
        return _until(self._phases, self._last, self.t)

    def served_after(self) -> float | None:
        """Seconds from launch until it served first."""
        return self._served_after

    def served_since(self) -> float | None:
        """The same in Unix seconds."""
        if self.launched_at is None or self._served_after is None:
            return None
        return self.launched_at + self._served_after

    def _judged(self, event: Event) -> bool:
        view, old = Assessment.of_event(event), self._last
        if view is None:
            return False
        phases = event.get("phases")
        if isinstance(phases, dict):
            self._phases = {name: number(taken) or 0.0 for name, taken in phases.items()}
        else:  # of an older watch: every change of phase is a verdict there, too
            self._phases = _until(self._phases, old, view.t)
        served_after = number(event.get("served_after_s"))
        if served_after is None and view.phase == "serving":
            served_after = view.t if self._served_after is None else self._served_after
        self._served_after, self._last = served_after, view
        return old is None or (old.phase, old.outcome, old.cause) != (
            view.phase,
            view.outcome,
            view.cause,
        )


def _until(phases: dict[str, float], last: Assessment | None, t: float) -> dict[str, float]:
    """`phases`, with what has passed since the last verdict."""
    total = dict(phases)
    if last is not None and last.phase != "serving":
        total[last.phase] = total.get(last.phase, 0.0) + max(0.0, t - last.t)
    return {phase: round(seconds, 3) for phase, seconds in total.items()}
