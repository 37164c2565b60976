"""Follow an engine's start through its journal until there is something final to say.

Knows no pyinfra: `ask` is one long poll of `sglangctl journal`, `say` prints a line.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from roles.readiness.subject import Subject
from roles.remote.follow import Reply
from sglangctl.diagnosis.outcomes import GIVEN_UP, PROVEN
from sglangctl.startup import render
from sglangctl.startup.assessment import Assessment
from sglangctl.startup.summary import Summary
from sglangctl.state import journal
from sglangctl.util.values import number

WAIT_S = 5.0
"""Of one long poll: short enough that a lost link is noticed within 20 s."""
LINE_S = 10.0
"""A line at least this often."""
PAUSE_S = 1.0
"""Between two polls: a burst of events becomes one round trip a second."""
NO_JOURNAL_S = 15.0
"""For the watch to begin a journal once the unit is starting."""
PROOF_S = 20.0
"""For the watch's proof to begin, once it serves: its word is what a second deploy goes by."""
LATE_S = 120.0
"""Beyond the start's own budget, before the silence of its watch is a verdict."""
MEMORY = 400
"""Points of GPU memory that are kept."""
DOWN_S = 3.0
"""For the journal's last word after the unit went down."""

Ask = Callable[[str | None, int, float], Reply]
"""(start, offset, seconds to wait) -> one answer of `sglangctl journal --unit`."""
Say = Callable[[str], None]


@dataclass(frozen=True)
class FollowResult:
    """Why following ended, and what is known then. `summary` has no view where there was no journal."""

    reason: str
    """`served`, `verdict` (failed, deadline, unresponsive, a rank that stays stopped), `down`
    (not running, and no verdict), `blind` (no journal; the unit is active) or `late`."""
    summary: Summary
    unit: dict[str, Any]
    start: str | None
    gpu_memory: list[tuple[float, float]] = field(default_factory=list)
    """(seconds since the launch, MiB used on the engine's GPUs together)."""


class Follower:
    """One engine's start, from wherever it is to its end. `clock` and `sleep` are seconds."""

    def __init__(
        self,
        subject: Subject,
        ask: Ask,
        say: Say,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self.subject = subject
        self.ask = ask
        self.say = say
        self.clock = clock
        self.sleep = sleep
        self.summary = Summary()
        self.start: str | None = None
        self.offset = 0
        self.unit: dict[str, Any] = {}
        self.blind = False
        self.heard_t = 0.0
        """The journal's time at the last event."""
        self.stopped_since: float | None = None
        self.down_at_s: float | None = None
        self.memory: list[tuple[float, float]] = []
        self.printed = clock()
        self.news = False
        """What comes now happens now: the first answer tells what was, maybe long ago."""

    def run(self) -> FollowResult:
        """Until it serves or something final can be said; raises what `ask` raises."""
        began = heard = self.clock()
        while True:
            asked = self.clock()
            reply = self.ask(self.start, self.offset, WAIT_S)
            now = self.clock()
            self.unit = reply.unit or {}
            if reply.source != self.start:
                self.begin(reply.source)
            self.offset = reply.offset
            if reply.events:
                heard = now
                self.feed(reply.events)
            elif self.watched and self.summary.view is not None:
                # The watch runs and has nothing to write: time passes for the start too.
                self.summary.tick(self.heard_t + now - heard)
            reason = self.reason_to_end(silent_s=now - heard, total_s=now - began)
            if reason is not None:
                return FollowResult(reason, self.summary, self.unit, self.start, self.memory)
            first = not self.news and self.summary.view is not None
            self.news = self.news or first
            self.print_line(first or now - self.printed >= LINE_S)
            self.sleep(max(0.0, PAUSE_S - (self.clock() - asked)))

    def begin(self, start: str | None) -> None:
        """Another start's journal: the first, or systemd has started the engine again."""
        if self.start is not None:
            self.say(f"started again by systemd: {start}")
        self.start = start
        self.summary = Summary()
        self.memory = []
        self.stopped_since = None

    def feed(self, events: Sequence[journal.Event]) -> None:
        for event in events:
            self.print_line(self.summary.feed(event) and self.news)
            if event["kind"] == "gpu":
                self.keep_memory()
        self.heard_t = self.summary.t

    def keep_memory(self) -> None:
        """For the report: half of the points go when there are too many."""
        used = [number(gpu.get("memory_used_mib")) for gpu in self.summary.gpus]
        if used and None not in used:
            self.memory.append((self.summary.gpus_t, sum(one or 0.0 for one in used)))
        if len(self.memory) > MEMORY:
            self.memory = self.memory[::2]

    @property
    def watched(self) -> bool:
        """Without systemd nothing is known of the watch: its journal is taken for granted."""
        return str(self.unit.get("watch", "active")) == "active"

    def reason_to_end(self, silent_s: float, total_s: float) -> str | None:
        """The reason of FollowResult, None while it goes on."""
        view = self.summary.view
        if view is not None and self.is_served(view):
            return "served"
        if view is not None and (
            view.outcome in GIVEN_UP | {"unresponsive"} or self.stays_stopped(view)
        ):
            return "verdict"
        active = self.unit.get("active")
        if active in ("inactive", "failed") and not self.unit.get("job"):
            self.down_at_s = total_s if self.down_at_s is None else self.down_at_s
            return "down" if min(silent_s, total_s - self.down_at_s) >= DOWN_S else None
        self.down_at_s = None
        if total_s >= self.subject.limits.start_s + LATE_S:
            return "late"
        if silent_s < NO_JOURNAL_S or (self.start is not None and self.watched):
            return None
        if not self.blind:
            self.blind = True
            self.say(
                f"no journal of this start (its watch is {self.unit.get('watch') or 'missing'}): "
                "waiting for the unit itself"
            )
        return "blind" if active in ("active", None) else None

    def is_served(self, view: Assessment) -> bool:
        """It answers, and the watch has proved it, or has had its time to do so."""
        if view.outcome in PROVEN:
            return True
        if view.outcome != "serving" or (view.phase == "warming" and self.watched):
            return False
        return not self.watched or self.summary.t - (self.summary.served_after() or 0.0) >= PROOF_S

    def stays_stopped(self, view: Assessment) -> bool:
        """A stopped rank is reported at once; that it stays so is a verdict."""
        if view.cause != "rank-stopped" or view.outcome != "stalled":
            self.stopped_since = None
            return False
        if self.stopped_since is None:
            self.stopped_since = self.summary.t
        return self.summary.t - self.stopped_since >= self.subject.limits.rank_stopped_s

    def print_line(self, due: bool) -> None:
        """Where it stands, if that is `due`."""
        if not due:
            return
        self.printed = self.clock()
        if self.summary.view is not None and not self.blind:
            self.say(
                f"{self.subject.name} "
                + render.progress_line(self.summary.view, self.summary.t, self.summary.gpus)
            )
            return
        state = f"{self.unit.get('active', 'unknown')}/{self.unit.get('sub', 'unknown')}"
        self.say(f"{self.subject.name} {self.subject.unit} is {state}")
