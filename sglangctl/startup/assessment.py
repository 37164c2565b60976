"""The result of the fold after each event."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from sglangctl.diagnosis.outcomes import OUTCOMES, PHASES
from sglangctl.util.values import number, text


@dataclass(frozen=True)
class Progress:
    """Counted work: `done` of `total` `unit`s of one model or step."""

    what: str
    """`target`, `drafter`, or the graphs' kind."""
    unit: str
    """`shards`, `graphs` or `bytes`."""
    done: int
    total: int

    def __str__(self) -> str:
        if self.unit == "bytes":
            scale, name = (1e9, "GB") if self.total >= 1e9 else (1e6, "MB")
            return f"{self.what}: {self.done / scale:.1f} of {self.total / scale:.1f} {name}"
        return f"{self.what}: {self.done} of {self.total} {self.unit}"


@dataclass(frozen=True)
class Assessment:
    """The state of one start at `t` (seconds since launch)."""

    t: float
    phase: str
    """One of outcomes.PHASES."""
    outcome: str
    """One of outcomes.OUTCOMES."""
    cause: str | None
    """A name in causes.CAUSES; None where the outcome has none."""
    progress: str | None
    """Counted work as text: `target: 3 of 14 shards`."""
    detail: Progress | None
    """The same as numbers."""
    eta_s: float | None
    """Seconds until the end of `eta_until`; None where nothing allows an estimate."""
    eta_error_s: float | None
    """Half the width of the estimate, seconds."""
    eta_until: str | None
    """`serving`, or the name of the phase whose end `eta_s` estimates."""
    evidence: tuple[str, ...]
    """The evidence for outcome and cause, most important first; printable text."""
    stopped_by: str | None = None
    """Who asked for the end: `failed` then is what is left of a start that somebody stopped."""

    @classmethod
    def of_event(cls, event: Mapping[str, Any]) -> Assessment | None:
        """What a `verdict` event says, of any version of the watch; None for a phase or an
        outcome that is none.

        `detail` is not read back.
        """
        outcome, phase = text(event.get("outcome")), text(event.get("phase"))
        evidence = event.get("evidence")
        if outcome not in OUTCOMES or phase not in PHASES:
            return None
        return cls(
            t=number(event.get("t")) or 0.0,
            phase=phase,
            outcome=outcome,
            cause=text(event.get("cause")),
            progress=text(event.get("progress")),
            detail=None,
            eta_s=number(event.get("eta_s")),
            eta_error_s=number(event.get("eta_error_s")),
            eta_until=text(event.get("eta_until")),
            evidence=tuple(map(str, evidence)) if isinstance(evidence, list) else (),
            stopped_by=text(event.get("stopped_by")),
        )

    def as_dict(self) -> dict[str, Any]:
        """The JSON form: fields of a `verdict` event and of `replay`."""
        return {**asdict(self), "evidence": list(self.evidence)}
