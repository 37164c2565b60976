"""Counted work and how long it will still take.

Sources: the shard bars of the loader (rank 0 alone prints them), the bars of graph capture,
and bytes read where the sizes of the weights are known. Shards may be bursty (public reports:
9, 36, 43 s for one after another), so that an estimate carries its error and bytes are preferred
while no shard has come for long.
"""

from __future__ import annotations

from collections import deque

from sglangctl.startup.assessment import Progress
from sglangctl.startup.loglines import Bar

_STEPS = 32
_SEEN_S = 2.0
"""Steps within less time than this tell no pace."""
_LEAST_ERROR_S = 6.0
_FLOOR = 0.5
"""The smallest error that is claimed, absolute and relative: later shards are not like earlier
ones (nine of ten samples of the recorded starts lie within)."""


class Counter:
    """One bar: how far it is, and the estimate."""

    def __init__(self, what: str, unit: str, total: int) -> None:
        self.what, self.unit, self.total = what, unit, total
        self.done = 0
        self._steps: deque[tuple[float, int]] = deque(maxlen=_STEPS)

    def update(self, t: float, done: int) -> bool:
        """Whether it got further. A number that falls begins the count again."""
        if done < self.done:
            self._steps.clear()
        elif done == self.done and self._steps:
            return False
        self.done = done
        self._steps.append((t, done))
        return True

    @property
    def last_t(self) -> float:
        """When it last got further."""
        return self._steps[-1][0] if self._steps else 0.0

    def eta(self, t: float) -> tuple[float, float] | None:
        """Seconds until it is complete and half the width of that estimate.

        From the mean pace of all steps seen and that of the newer half; the error is their
        difference, and not below half of it. Silence longer than one step makes both grow.
        """
        left = self.total - self.done
        if left <= 0 or len(self._steps) < 2:
            # Complete, and the phase goes on: how long is not told by this bar.
            return None
        (t0, d0), (t1, d1) = self._steps[0], self._steps[-1]
        middle_t, middle_d = self._steps[len(self._steps) // 2]
        if d1 <= d0 or t1 - t0 < _SEEN_S:
            return None
        pace = (t1 - t0) / (d1 - d0)
        newer = (t1 - middle_t) / (d1 - middle_d) if d1 > middle_d else pace
        silent = max(0.0, t - t1)
        best = left * (pace + newer) / 2
        error = max(_FLOOR * best + _LEAST_ERROR_S, left * abs(pace - newer))
        late = silent - (pace + newer) / 2
        if late > 0:
            # The next one is overdue: the rest may come at the pace of this silence.
            error += late * min(left, 3)
        else:
            best = max(0.0, best - silent)
        return (best, error)


class Work:
    """All counted work of one start; `feed` takes the bars in the order of the log."""

    def __init__(self) -> None:
        self.current: Counter | None = None
        self.weights_bytes: dict[str, int] = {}
        self._bytes: Counter | None = None
        self._read_before = 0.0
        self._read = 0.0

    def feed(self, t: float, what: str, unit: str, bar: Bar) -> bool:
        """A bar: the loader's `shards` of `target` or `drafter`, or the `graphs` of a kind; whether it
        got further."""
        counter = self.current
        if counter is None or (counter.what, counter.unit, counter.total) != (
            what,
            unit,
            bar.total,
        ):
            counter = self.current = Counter(what, unit, bar.total)
        return counter.update(t, bar.done)

    def loading(self, t: float, model: str) -> None:
        """A model's weights begin to load: bytes are counted from here."""
        total = self.weights_bytes.get(model, 0)
        self._bytes = Counter(model, "bytes", total) if total > 0 else None
        self._read_before = self._read
        if self._bytes is not None:
            self._bytes.update(t, 0)

    def read(self, t: float, read_bytes: float) -> None:
        """Bytes read so far by all processes of the engine."""
        self._read = read_bytes
        if self._bytes is not None:
            done = int(min(max(0.0, read_bytes - self._read_before), self._bytes.total))
            if done > self._bytes.done:
                self._bytes.update(t, done)

    def end(self) -> None:
        """Nothing is being counted any more."""
        self.current = self._bytes = None

    def best(self, t: float, phase: str) -> Counter | None:
        """The counter that tells most in this phase."""
        shown = self.current
        if phase == "loading":
            counted = self._bytes
            if shown is not None and shown.unit != "shards":
                shown = None
            if counted is None or (shown is None and not counted.done):
                return shown
            if shown is None or (shown.done < 2 and counted.done):
                return counted
            # Bursty: no shard for long while bytes still come.
            return counted if counted.last_t - shown.last_t > 20.0 else shown
        if phase == "capturing" and shown is not None and shown.unit == "graphs":
            return shown
        return None


def shown(counter: Counter) -> Progress:
    """The counter as it is shown."""
    return Progress(counter.what, counter.unit, counter.done, counter.total)
