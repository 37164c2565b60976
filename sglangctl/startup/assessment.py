"""What the fold says after each event."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any


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
    """One of diagnose.PHASES."""
    outcome: str
    """One of diagnose.OUTCOMES."""
    cause: str | None
    """One of diagnose.CAUSES; None where the outcome has none."""
    progress: str | None
    """Counted work in words: `target: 3 of 14 shards`."""
    detail: Progress | None
    """The same as numbers."""
    eta_s: float | None
    """Seconds until the end of `eta_until`; None where nothing allows an estimate."""
    eta_error_s: float | None
    """Half the width of the estimate, seconds."""
    eta_until: str | None
    """`serving`, or the name of the phase whose end `eta_s` estimates."""
    evidence: tuple[str, ...]
    """What the outcome and cause rest on, the most telling first; printable text."""
    stopped_by: str | None = None
    """Who asked for the end: `failed` then is what is left of a start that somebody stopped."""

    def as_dict(self) -> dict[str, Any]:
        """The JSON form: fields of a `verdict` event and of `replay`."""
        return asdict(self)
