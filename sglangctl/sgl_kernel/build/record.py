"""The build's own journal: what it does, in the format of every journal, and on its output."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Protocol

from sglangctl.state import journal
from sglangctl.util.errors import Failed

JOURNAL = "journal.jsonl"


class Tell(Protocol):
    """Tells one step of a build."""

    def __call__(self, step: str, **fields: Any) -> None: ...


class BuildError(Failed):
    """The build cannot go on."""

    def __init__(self, sentence: str, next_step: str) -> None:
        super().__init__(f"{sentence}\n  next: {next_step}")
        self.sentence, self.next_step = sentence, next_step


class Record:
    """Writes `build` events; `t` is seconds since this run began."""

    def __init__(self, folder: Path, clock: Callable[[], float] = time.monotonic) -> None:
        self.path = folder / JOURNAL
        # Only a run's own events: who follows asks for an offset of this file.
        self.path.unlink(missing_ok=True)
        self._writer = journal.Writer(self.path, 0o644)
        self._clock, self._start = clock, clock()

    def __call__(self, step: str, **fields: Any) -> None:
        """One event: `step` is lock, begin, source, environment, jobs, compile, retry, wheel, inspect,
        check, promote or end."""
        self._writer.write(self.seconds, "build", step=step, **fields)

    @property
    def seconds(self) -> float:
        return self._clock() - self._start

    def close(self) -> None:
        self._writer.close()


def line(event: dict[str, Any]) -> str:
    """One event for people."""
    step, text = str(event.get("step")), str(event.get("text", ""))
    if step == "compile" and "total" in event:
        eta = event.get("eta_s")
        left = f", about {minutes(float(eta))} left" if isinstance(eta, (int, float)) else ""
        peak = event.get("memory_mib")
        memory = f", {float(peak) / 1024:.1f} GiB" if isinstance(peak, (int, float)) else ""
        return f"compiling: {event.get('done')} of {event['total']}{left}{memory}"
    return f"{step}: {text}" if text else step


def minutes(seconds: float) -> str:
    """`40 s`, `12 min`."""
    return f"{seconds:.0f} s" if seconds < 90 else f"{seconds / 60:.0f} min"
