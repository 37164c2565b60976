"""Writes the journal, and feeds the same events to the fold.

The fold is fed everything. The file gets everything while the engine starts or something is
wrong; while it serves, changes and one line a minute of each kind. What a full disk has no room for
is lost, the fold goes on, and the first line after that is the verdict. Before something alarming is
written, the last samples that were left out are written too, so that a replay of the file sees
what the fold saw.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from sglangctl.diagnosis.outcomes import SERVED
from sglangctl.startup.assessment import Assessment
from sglangctl.startup.fold import Startup
from sglangctl.state.journal import Event, Writer
from sglangctl.util import lazy_re

CALM_S = 60.0
"""Between two lines of a kind while the engine serves; also how long an alarm is remembered."""
LONG_S = 1200.0
"""A start (or an alarm) this old is written at every SLOW_S only."""
SLOW_S = 5.0
VERDICT_S = 5.0
"""Between two verdicts that differ in progress or estimate alone."""
LOG_ROOM = 16 << 20
"""Bytes of log that a start may write at once ..."""
LOG_REFILL = 1 << 10
"""... and for each second after that: a debug log does not fill the disk twice."""
ROOM = 48 << 20
"""Bytes that the journal of a start may have at once, whatever is in it ..."""
REFILL = 128
"""... and for each second after that: a quiet engine of 8 ranks writes 100."""
LARGE = frozenset(["log", "process", "gpu"])
"""How much is in these is the engine's own choice. They leave the others some room:"""
SMALL_ROOM = 8 << 20
ALWAYS = frozenset(["launch", "exit", "step"])
"""Written in any case: a few a start."""
ROUTINE = lazy_re.compile(
    r"(?:Prefill|Decode) batch[,. ]|INFO: +\S+ - \"[A-Z]+ \S+ HTTP/[\d.]+\" 200|^\s*$"
)
"""Lines of an engine at work."""
SAMPLED = frozenset(["http", "process", "gpu"])


class Recorder:
    """Feeds `startup`, and writes to `writer` (None: nowhere)."""

    def __init__(
        self,
        startup: Startup,
        writer: Writer | None = None,
        changed: Callable[[Assessment], None] = lambda assessment: None,
        lost: Callable[[OSError], None] = lambda error: None,
    ) -> None:
        """`lost` is told once that the file cannot be written."""
        self._startup = startup
        self._writer = writer
        self._changed = changed
        self._lost, self._losing = lost, False
        self.assessment: Assessment | None = None
        self._told: tuple[Any, ...] | None = None
        self._told_progress: tuple[Any, ...] = ()
        self._told_t = 0.0
        self._withheld: dict[str, tuple[float, dict[str, Any]]] = {}
        self._written: dict[str, float] = {}
        self._answer: tuple[Any, ...] = ()
        self._alarm_t: float | None = None
        self._owed = False
        """The last verdict found no room."""
        self._left_over = 0
        """Events that there was no room for since the last one that was written."""
        self._room = float(LOG_ROOM)
        self._room_t = 0.0
        self._skipped = 0

    @property
    def outcome(self) -> str | None:
        return self.assessment.outcome if self.assessment else None

    @property
    def up(self) -> bool:
        """Whether it serves, by the last verdict."""
        return self.outcome in SERVED

    @property
    def compiling(self) -> bool:
        """Whether the engine compiles kernels just now."""
        return bool(self._startup.compiling)

    @property
    def walking(self) -> bool:
        """Whether the proof walks the users' paths just now."""
        return bool(self._startup.warm.path)

    @property
    def due(self) -> float | None:
        """When time alone may change the verdict, in seconds since the launch."""
        return self._startup.due

    def record(self, t: float, kind: str, alarming: bool = False, **fields: Any) -> None:
        """Take one event of time `t` (seconds since the launch)."""
        calm = self._calm(t)
        if alarming and self.up:
            self._alarm_t = t
        if kind == "log":
            self._log(t, fields, calm)
        elif kind not in SAMPLED or alarming or not self._left_out(t, kind, fields, calm):
            if alarming and calm:
                self._flush(*SAMPLED)
            self._write(t, kind, fields)
        else:
            self._withheld[kind] = (t, fields)
        self._judged(t, self._startup.feed({"t": round(t, 3), "kind": kind, **fields}))

    def tick(self, t: float) -> None:
        """Time passes."""
        self._judged(t, self._startup.tick(t))

    def replay(self, event: Event) -> None:
        """Take an event that the file has already (a watch that was started again)."""
        self.assessment = self._startup.feed(event)
        self._told = _headline(self.assessment)
        self._written[event["kind"]] = event["t"]

    def _calm(self, t: float) -> bool:
        if self.walking:
            return False  # what is compiled for a path is to be seen afterwards as well
        return self.up and (self._alarm_t is None or t - self._alarm_t >= CALM_S)

    def _left_out(self, t: float, kind: str, fields: dict[str, Any], calm: bool) -> bool:
        last = self._written.get(kind)
        if last is None or (kind == "http" and _answer(fields) != self._answer):
            return False
        if calm:
            # What was seen before it served is no word about what serves: its memory, above all.
            return t - last < CALM_S and last >= (self._startup.served_t or 0.0)
        begun = self._alarm_t if self.up and self._alarm_t is not None else 0.0
        return t - begun > LONG_S and t - last < SLOW_S

    def _log(self, t: float, fields: dict[str, Any], calm: bool) -> None:
        data = fields.get("data", "")
        kept = dict(fields)
        if calm:
            kept["data"] = "".join(
                line for line in data.splitlines(keepends=True) if not ROUTINE.search(line)
            )
            if not kept["data"]:
                if t - self._written.get("log", 0.0) < CALM_S:
                    return
                kept["data"] = data[-1000:]
            self._flush("http")
        self._room = min(float(LOG_ROOM), self._room + LOG_REFILL * (t - self._room_t))
        self._room_t = t
        if len(kept["data"]) > self._room:
            self._skipped += len(kept["data"])
            return
        self._room -= len(kept["data"])
        if self._skipped:
            kept["skipped_bytes"], self._skipped = self._skipped, 0
        self._write(t, "log", kept)

    def _flush(self, *kinds: str) -> None:
        """Write the last samples that were left out."""
        found = [(*self._withheld.pop(kind), kind) for kind in kinds if kind in self._withheld]
        for t, fields, kind in sorted(found, key=lambda item: item[0]):
            self._write(t, kind, fields)

    def _write(self, t: float, kind: str, fields: dict[str, Any]) -> None:
        self._written[kind] = t
        if kind == "http":
            self._answer = _answer(fields)
        # What was left out before this line would now stand after it: it is dropped.
        self._withheld = {
            other: held for other, held in self._withheld.items() if held[0] >= t and other != kind
        }
        if self._writer is None:
            return
        room = ROOM + REFILL * t + (0 if kind in LARGE else SMALL_ROOM)
        if kind not in ALWAYS and self._writer.bytes > room:
            self._left_over += 1
            self._owed = self._owed or kind == "verdict"
            return
        if self._left_over:
            fields, self._left_over = {**fields, "skipped_events": self._left_over}, 0
        try:
            self._writer.write(t, kind, **fields)
        except OSError as error:
            if not self._losing:
                self._lost(error)
            self._losing = True
            return
        if self._losing:
            self._losing, self._told = False, None

    def _judged(self, t: float, assessment: Assessment) -> None:
        self.assessment = assessment
        headline = _headline(assessment)
        progress = (assessment.progress, assessment.eta_s)
        news = headline != self._told
        same = progress == self._told_progress and not self._owed
        if not news and (same or t - self._told_t < VERDICT_S):
            return
        self._owed = False
        if news and self._calm(t):
            self._flush(*SAMPLED)
        self._told, self._told_progress, self._told_t = headline, progress, t
        fields = {
            key: value for key, value in assessment.as_dict().items() if key not in ("t", "kind")
        }
        # With these two nobody who reads the journal has to fold it again.
        fields["phases"] = self._startup.phases.seconds(t)
        fields["served_after_s"] = self._startup.served_t
        self._write(t, "verdict", fields)
        if news:
            self._changed(assessment)


def _answer(fields: dict[str, Any]) -> tuple[Any, ...]:
    """What makes one answer differ from another."""
    return tuple(fields.get(key) for key in ("path", "status", "error"))


def _headline(assessment: Assessment) -> tuple[Any, ...]:
    return (assessment.phase, assessment.outcome, assessment.cause, assessment.stopped_by)
