"""Which phase the start is in, from the log and, where the log lags, from GPU memory.

Log lines of 0.5.9 to 0.5.23: "Init torch distributed" became "Init parallel", "Loading
safetensors checkpoint shards" became "Multi-thread loading shards", "Capture cuda graph" became
"Capture target decode CUDA graph". With a drafter the same lines come once more for its weights.
"""

from __future__ import annotations

from sglangctl.diagnosis.outcomes import ORDER
from sglangctl.startup.loglines import Bar

_MOST_RANKS = 4096
CONTEXT_MIB = 300.0
"""More than this per GPU: a CUDA context exists (500 to 1700 MiB measured before loading)."""
WEIGHTS_MIB = 3072.0
WEIGHTS_SHARE = 0.05
"""More than both of these per GPU: weights are on it (2400 MiB was the most seen before)."""


class Phases:
    """The phase and what leads to it."""

    def __init__(self) -> None:
        self.name = "launching"
        self.since = 0.0
        self.durations: dict[str, float] = {}
        """Seconds spent in each phase that was left."""
        self.world: int | None = None
        """How many ranks there should be (tensor x pipeline parallel), where known."""
        self.drafter = False
        """Whether a drafter is to be loaded."""
        self.model = "target"
        """What is being loaded: target or drafter."""
        self.from_gpu = False
        """The phase rests on GPU memory: the log lags."""
        self.ranks: set[str] = set()
        """Ranks that have written a line; "" is the only one at TP 1."""
        self.capture = "graphs"
        self._loading: set[str] = set()
        self._loaded: dict[str, int] = {}
        self._capturing: set[str] = set()
        self._gpu_base: list[float] | None = None

    def at_least(self, t: float, name: str) -> bool:
        """Go to `name` unless the phase is already there or beyond; whether it changed."""
        return ORDER[name] > ORDER[self.name] and self._go(t, name)

    def seconds(self, now: float) -> dict[str, float]:
        """Seconds in each phase up to `now`, in their order; `serving` is no wait."""
        total = dict(self.durations)
        total[self.name] = total.get(self.name, 0.0) + max(0.0, now - self.since)
        total.pop("serving", None)
        return {
            name: round(taken, 3) for name, taken in total.items() if taken or name == self.name
        }

    def _go(self, t: float, name: str) -> bool:
        if name == self.name:
            return False
        self.durations[self.name] = self.durations.get(self.name, 0.0) + max(0.0, t - self.since)
        self.name, self.since, self.from_gpu = name, t, False
        return True

    def spoke(self, rank: str) -> None:
        """A rank has written a line."""
        if len(self.ranks) < _MOST_RANKS:
            self.ranks.add(rank)

    def connecting(self, t: float, rank: str) -> bool:
        """A rank begins the rendezvous."""
        self.spoke(rank)
        return self.at_least(t, "connecting")

    def load_begin(self, t: float, rank: str) -> bool:
        """A rank begins to load weights; a second time on one rank: the drafter's."""
        self.spoke(rank)
        self._loading.add(rank)
        if self._loaded.get(rank, 0) >= 1:
            self.model = "drafter"
        if ORDER[self.name] < ORDER["loading"] or (
            # Older versions load the drafter after the target's graphs were captured.
            self.name in ("allocating", "capturing")
        ):
            return self._go(t, "loading")
        return False

    def load_end(self, t: float, rank: str) -> bool:
        """A rank has loaded; the phase ends with the last of them."""
        self._loading.discard(rank)
        self._loaded[rank] = self._loaded.get(rank, 0) + 1
        rounds = 2 if self.drafter else 1
        expected = max(len(self.ranks), self.world or 1)
        complete = sum(count >= rounds for count in self._loaded.values()) >= expected
        if self._loading or not complete:
            return self.at_least(t, "loading")
        return self.at_least(t, "allocating")

    def allocating(self, t: float) -> bool:
        """The key/value cache is there."""
        if self.name == "loading" and self._loading:
            return False
        return self.at_least(t, "allocating")

    def capture_begin(self, t: float, rank: str, what: str) -> bool:
        """A rank begins to capture graphs; what: `target decode`, `draft extend`, ..."""
        self._capturing.add(rank)
        self.capture = what
        return self.at_least(t, "capturing")

    def capture_end(self, rank: str) -> None:
        """A rank has captured one kind of graph."""
        self._capturing.discard(rank)

    def initialised(self, t: float) -> bool:
        """A scheduler says that it is complete."""
        if self._loading or self._capturing:
            return False
        return self.at_least(t, "binding")

    def gpu(self, t: float, used: list[float], total: list[float], ours: bool) -> bool:
        """Memory per GPU, MiB; ours: only what our own processes hold.

        The least used GPU decides, so that one other process does not move the phase.
        What was in use in the first seconds is someone else's, unless `ours`; what goes
        away later was left over from before.
        """
        if self._gpu_base is None or len(self._gpu_base) != len(used):
            self._gpu_base = list(used) if t <= 5.0 and not ours else [0.0] * len(used)
        if not used:
            return False
        least_own = 1e12
        with_weights = True
        for index, (now, base, size) in enumerate(zip(used, list(self._gpu_base), total)):
            own = now if ours else now - base
            if now < base:
                self._gpu_base[index] = now
            least_own = min(least_own, own)
            with_weights &= own > max(WEIGHTS_MIB, WEIGHTS_SHARE * size)
        name = "loading" if with_weights else "connecting" if least_own > CONTEXT_MIB else ""
        if not name or not self.at_least(t, name):
            return False
        self.from_gpu = True
        return True


def shard_bar(bar: Bar) -> bool:
    """Whether a bar counts weight files."""
    label = bar.label
    return label.endswith("shards") or label.startswith("Loading ")


def graph_bar(bar: Bar) -> bool:
    """Whether a bar counts graphs."""
    return bar.label.startswith("Capturing ")
