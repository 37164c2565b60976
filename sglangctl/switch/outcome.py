"""The outcome of a start that a switch has begun, from systemd and the watch's verdicts."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import Any, Callable

from sglangctl.diagnosis.causes import CAUSES
from sglangctl.diagnosis.outcomes import PROVEN
from sglangctl.startup.render import duration
from sglangctl.state import journal, starts
from sglangctl.state.config import EngineConfig
from sglangctl.state.paths import Paths
from sglangctl.systemd.unit import Unit, find
from sglangctl.util.heartbeat import BEAT_S
from sglangctl.util.values import texts
from sglangctl.watch import before_start

LOOK_S = 0.25
LAST_WORDS_S = 3.0
"""For the watch's verdict after the unit went down: a failure waits 2 s for its cause."""
PROOF_S = 60.0
"""For the watch's proof once it serves, beyond the time that one generation may take."""
LATE_S = 120.0
"""Beyond the start's own budget: then its watch is dead, and so is nobody's hope."""
BEGUN_S = 30.0
"""For systemd to begin the start that it was asked for."""

ACCEPTANCE = "acceptance: "
"""How the check's line begins in the evidence of a verdict (startup/verdict.py)."""

OUTCOME_OF = {"rank-stopped": "stalled", "unproven": "serving", "down": "failed"}
"""Words of an Outcome that are none of the outcomes of a start -> the one that they come closest to."""


@dataclass(frozen=True)
class Outcome:
    """How a start ended: `word` is ready, degraded, failed, deadline, rank-stopped, unproven or
    down (no verdict, and the unit does not run)."""

    word: str
    sentence: str
    """What happened, for people; ends without a full stop."""
    verdict: journal.Event = field(default_factory=dict)
    """The watch's last word; empty where there is none."""
    start: str | None = None
    """The folder of its journal."""

    @property
    def proven(self) -> bool:
        return self.word in PROVEN

    @property
    def cause(self) -> str | None:
        cause = self.verdict.get("cause")
        return cause if isinstance(cause, str) else None

    @property
    def evidence(self) -> list[str]:
        found: Any = self.verdict.get("evidence")
        return [str(line) for line in found] if isinstance(found, list) else []

    def document(self) -> dict[str, Any]:
        """For the switch's journal: the controller's report is made of it."""
        more = ("phase", "phases", "served_after_s", "stopped_by")
        return {
            "outcome": OUTCOME_OF.get(self.word, self.word),
            "sentence": self.sentence,
            "cause": self.cause,
            "evidence": self.evidence,
            "start": self.start,
            **{key: self.verdict[key] for key in more if key in self.verdict},
        }


def follow(
    engine: EngineConfig,
    paths: Paths,
    say: Callable[[str], None],
    before: str = "",
    clock: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], None] = time.sleep,
) -> Outcome:
    """Wait for the outcome of the start that follows invocation `before`.

    A start is given up only on what is certain: it failed, it is down, a rank stays stopped, its
    time budget is spent, or it serves and cannot prove it.
    """
    return _Following(engine, paths, say, before, clock, sleep).run()


def of_verdict(engine: EngineConfig, verdict: journal.Event, start: str | None) -> Outcome:
    """Of a start that the watch has given up, by its last word."""
    word = str(verdict.get("outcome"))
    known = CAUSES.get(str(verdict.get("cause")))
    because = f": {known.sentence} ({known.name})" if known else ""
    sentence = f"it failed while {verdict.get('phase', 'starting')}{because}"
    if word == "deadline":
        sentence = f"it did not serve within {duration(engine.limits.start_s)}{because}"
    return Outcome(word, sentence, verdict, start)


def _refused(verdict: journal.Event) -> str | None:
    """What the acceptance has against an engine that the inventory wants refused for it (`fail`): it
    is measured once in a start, so that waiting changes nothing. None where it has nothing."""
    lines = texts(verdict.get("evidence"))
    found = (one[len(ACCEPTANCE) :] for one in lines if one.startswith(ACCEPTANCE))
    return next(found, None)


class _Following:
    def __init__(
        self,
        engine: EngineConfig,
        paths: Paths,
        say: Callable[[str], None],
        before: str,
        clock: Callable[[], float],
        sleep: Callable[[float], None],
    ) -> None:
        self.engine, self.paths, self.say, self.before = engine, paths, say, before
        self.clock, self.sleep = clock, sleep
        self.began = self.told = clock()
        self.since: dict[str, float] = {}
        """What holds now -> since when."""

    def run(self) -> Outcome:
        while True:
            unit = find(self.engine.unit)
            start, verdict = self._verdict(unit)
            outcome = self._judged(unit, start, verdict)
            if outcome is not None:
                return outcome
            if self.clock() - self.told >= BEAT_S:
                self.told = self.clock()
                self.say(self._line(unit, verdict))
            self.sleep(LOOK_S)

    def _verdict(self, unit: Unit | None) -> tuple[str | None, journal.Event | None]:
        """The start that the unit is in, and the watch's last word on it."""
        if unit is None or unit.invocation_id in ("", self.before):
            return None, None
        start = starts.of_invocation(self.engine.name, unit.invocation_id, self.paths)
        if start is None:
            return None, None
        file = self.paths.starts(self.engine.name) / start / starts.JOURNAL
        return start, starts.last_verdict(file)

    def _judged(
        self, unit: Unit | None, start: str | None, verdict: journal.Event | None
    ) -> Outcome | None:
        word = str(verdict.get("outcome")) if verdict else ""
        cause = verdict.get("cause") if verdict else None
        limits = self.engine.limits
        total = self.clock() - self.began
        if word in PROVEN:
            return Outcome(word, f"{self.engine.name} is {word}", verdict or {}, start)
        if word in ("failed", "deadline"):
            return of_verdict(self.engine, verdict or {}, start)
        stopped = cause == "rank-stopped" and word in ("stalled", "unresponsive")
        if self._for("stopped", stopped) >= limits.rank_stopped_s:
            return Outcome("rank-stopped", "one of its ranks stays stopped", verdict or {}, start)
        refused = _refused(verdict or {}) if word == "serving" else None
        if refused is not None:
            sentence = f"it serves, and is not accepted: {refused}"
            return Outcome("unproven", sentence, verdict or {}, start)
        # While it walks the paths it may compile for minutes at each: the watch judges that.
        phase = verdict.get("phase") if verdict else None
        serving = word in ("serving", "unresponsive") and phase != "warming"
        if self._for("serving", serving) >= limits.generate_timeout_s + PROOF_S:
            sentence = "it serves, and no generation has proved it"
            return Outcome("unproven", sentence, verdict or {}, start)
        begun = unit is not None and unit.invocation_id != self.before
        down = unit is not None and unit.down and (begun or total >= BEGUN_S)
        if self._for("down", down) >= LAST_WORDS_S:
            return self._down(unit, start)
        if total >= limits.start_s + LATE_S:
            return Outcome(
                "deadline", f"the watch reported nothing for {duration(total)}", start=start
            )
        return None

    def _for(self, what: str, holds: bool) -> float:
        """Seconds for which `what` has held without a break; -1 where it does not hold."""
        if not holds:
            self.since.pop(what, None)
            return -1.0
        return self.clock() - self.since.setdefault(what, self.clock())

    def _down(self, unit: Unit | None, start: str | None) -> Outcome:
        assert unit is not None
        why = before_start.why(self.engine, unit, self.paths)
        said = why.sentence if why else "somebody stopped it"
        return Outcome("down", f"{self.engine.unit} does not run: {said}", start=start)

    def _line(self, unit: Unit | None, verdict: journal.Event | None) -> str:
        event = verdict or {}
        parts = [str(event[key]) for key in ("phase", "progress") if event.get(key)]
        state = f"{unit.active}/{unit.sub}" if unit else "unknown"
        text = " ".join(parts) or f"{self.engine.unit} is {state}"
        return f"{self.engine.name}: {text}, for {duration(self.clock() - self.began)}"
