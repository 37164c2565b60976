"""Outcome, cause, estimate and evidence from the state of a start."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from sglangctl.diagnosis import readiness
from sglangctl.diagnosis.outcomes import ORDER
from sglangctl.diagnosis.readiness import Expected, Facts
from sglangctl.startup import evidence, progress
from sglangctl.startup.assessment import Assessment, Progress
from sglangctl.startup.ranks import STOPPED_S
from sglangctl.startup.root_cause import RootCause, root_cause
from sglangctl.startup.state import State
from sglangctl.util.values import printable

_HOLD = 0.75
"""Share of `failed_cause_s` that a failure waits for the log's own cause: the rest is left for
the caller's clock."""
_HISTORY_ERROR = 0.65
_COMPILED_ERROR = 0.95
"""The same for phases that a warm compile cache makes a tenth as long."""
_COMPILED = ("connecting", "capturing", "warming")
_LEAST_ERROR_S = 12.0
"""Relative error that is claimed for phases known from the last good start alone."""
_FLEETING_S = 3.0
"""A compiler that is seen for less is not told: a driver stub is compiled in nearly every start."""
OTHER_ENGINE = "not an SGLang start: nothing is judged"

Judged = tuple[str, "str | None", tuple[str, ...]]


@dataclass(frozen=True)
class _Estimate:
    key: tuple[str, int, int, str]
    seconds: float | None
    error: float | None
    until: str | None


class Judge:
    """Keeps the verdict that is final and what was computed last."""

    def __init__(self) -> None:
        self._failed: RootCause | None = None
        self._estimate: _Estimate | None = None
        self._evidence: tuple[tuple[Any, ...], tuple[str, ...]] | None = None

    @property
    def undecided(self) -> bool:
        """No failure was said yet."""
        return self._failed is None

    def assess(self, s: State) -> Assessment:
        """The assessment at `s.now`."""
        if s.launched.other_engine:
            return Assessment(
                s.now, s.phases.name, "pending", None, None, None, None, None, None, (OTHER_ENGINE,)
            )
        outcome, cause, telling = self._outcome(s)
        counter = None if s.served else s.work.best(s.now, s.phases.name)
        detail = None if counter is None else progress.shown(counter)
        estimate = self._eta(s, counter, outcome)
        warming = walks(s) if outcome == "serving" else ""
        return Assessment(
            t=s.now,
            phase="warming" if warming else s.phases.name,
            outcome=outcome,
            cause=cause,
            progress=warming or _progress(s, detail, outcome),
            detail=detail,
            eta_s=estimate.seconds,
            eta_error_s=estimate.error,
            eta_until=estimate.until,
            evidence=telling or self._state(s, outcome),
            stopped_by=self._failed.stopped_by if self._failed and outcome == "failed" else None,
        )

    def due(self, s: State) -> float | None:
        """When `assess` may differ by time alone; None: never."""
        if s.launched.other_engine:
            return None
        times: list[float] = []
        crash = s.failures.crash
        if crash is not None:
            times.append(crash.t + _HOLD * s.limits.failed_cause_s)
        if s.lines.tail:
            times.append(s.lines.tail_t + 0.5)
        if s.service.held_t is not None and not s.served and crash is None:
            times.append(s.service.held_t + s.limits.port_held_s)
        if s.stopped_t is not None:
            times.append(s.stopped_t + STOPPED_S)
        if self._failed is None:
            if s.served:
                if s.service.failed or s.proof.hung:
                    times.append(s.now + 1.0)
            else:
                times += [s.motion.stalled_at(s.limits), s.limits.start_s]
        later = [t for t in times if t > s.now]
        return min(later, default=None)

    def _outcome(self, s: State) -> Judged:
        crash = s.failures.crash
        if crash is not None:
            failed = self._fail(s)
            if failed is not None:
                return ("failed", failed.cause, failed.evidence)
        if s.stopped:
            outcome = "unresponsive" if s.served else "stalled"
            return (outcome, "rank-stopped", evidence.stopped(s))
        if s.served:
            return self._serving(s)
        if s.now >= s.limits.start_s:
            return ("deadline", None, ())
        if s.now >= s.motion.stalled_at(s.limits):
            return ("stalled", None, ())
        return ("pending", None, ())

    def _fail(self, s: State) -> RootCause | None:
        """The failure's cause; None while the log is about to name it.

        A cause that is not sure may still be bettered within `failed_cause_s`.
        """
        crash = s.failures.crash
        assert crash is not None
        if self._failed is not None and (
            self._failed.sure or s.now > crash.t + s.limits.failed_cause_s
        ):
            return self._failed
        settled = s.now >= crash.t + _HOLD * s.limits.failed_cause_s or s.exit is not None
        if crash.source == "process" and not s.ranks.lost_sure and not settled:
            # One look that missed a rank decides nothing.
            return None
        best = root_cause(s, crash)
        # What the engine says itself comes after the words of the process that died; a process
        # event may come before them, and a traceback's last line is the one that counts.
        waiting = s.failures.open or crash.source == "process"
        if best.sure or settled or not waiting or self._failed is not None:
            self._failed = best
        return self._failed

    def _serving(self, s: State) -> Judged:
        # Nobody is promised an answer yet: a compile that our own request waits for may take longer
        # than the limits of an engine that is ready. That request has a limit of its own.
        warming = s.warm.path and s.compiling
        if not warming and s.service.silent(s.now, s.limits, s.working_t):
            return ("unresponsive", None, ())
        proof = s.proof
        if proof.hung and not s.service.loaded and s.working_t is None:
            return ("unresponsive", None, (f"/health answers, but {proof.error}",))
        if not proof.ok:
            return ("serving", None, ())
        failed = readiness.decide(*_readiness(s)).failed
        hard = [check for check in failed if not check.degrades]
        if failed:
            lines = tuple(f"{check.name}: {printable(check.detail)}" for check in hard or failed)
            return ("serving" if hard else "degraded", None, lines)
        return ("ready", None, ())

    def _eta(self, s: State, counter: progress.Counter | None, outcome: str) -> _Estimate:
        if s.served or outcome == "failed":
            return _NO_ESTIMATE
        phase = s.phases.name
        key = (phase, -1 if counter is None else counter.done, int(s.now), outcome)
        known = self._estimate
        if known is None or known.key != key:
            seconds, error, until = _estimate(s, counter)
            known = self._estimate = _Estimate(key, seconds, error, until)
        return known

    def _state(self, s: State, outcome: str) -> tuple[str, ...]:
        """What is seen, for an outcome that no single line proves."""
        seen = (s.served, s.service.failed, s.proof.ok, s.warm.path)
        key = (outcome, s.phases.name, int(s.now), *seen)
        if self._evidence is None or self._evidence[0] != key:
            self._evidence = (key, tuple(evidence.state(s, outcome)))
        return self._evidence[1]


_NO_ESTIMATE = _Estimate(("", 0, 0, ""), None, None, None)


def _estimate(
    s: State, counter: progress.Counter | None
) -> tuple[float | None, float | None, str | None]:
    """Seconds, half the width, and until what."""
    phase = s.phases.name
    counted = counter.eta(s.now) if counter is not None else None
    history = s.launched.history
    if not history:
        target = s.launched.drafter and s.phases.model == "target"
        if counted is None or phase == "capturing" or target:
            # Graphs of several kinds have a bar each, one after another; so have the drafter's shards.
            return (None, None, None)
        return (round(counted[0], 1), round(counted[1], 1), phase)
    if counted is not None:
        left, error = counted
    else:
        left = history.get(phase, 0.0) - (s.now - s.phases.since)
        if left <= 0:
            # A phase that the last start did not have, or that takes longer now: nothing is known.
            return (None, None, None)
        error = _history_error(phase) * left
    after = {
        name: seconds
        for name, seconds in history.items()
        if ORDER.get(name, -1) > ORDER[phase] and name != "serving"
    }
    later = sum(after.values())
    error += sum(_history_error(name) * seconds for name, seconds in after.items())
    return (
        round(left + later, 1),
        round(max(_LEAST_ERROR_S, error), 1),
        "serving",
    )


def _history_error(phase: str) -> float:
    return _COMPILED_ERROR if phase in _COMPILED else _HISTORY_ERROR


def _readiness(s: State) -> tuple[Expected, Facts]:
    """What the journal says on each condition of `ready`, of an engine that serves."""
    launched, service, proof = s.launched, s.service, s.proof
    expected = Expected(
        port=launched.port,
        served_name=launched.served_name,
        ranks=launched.world,
        speculative=launched.speculative,
        algorithm=launched.algorithm or "",
        min_accept_length=launched.min_accept_length,
    )
    models = service.models
    if models is None and proof.model:
        models = (proof.model,)
    facts = Facts(
        main_alive=s.exit is None,
        port_ours=service.identified or None,
        port_owner=service.identity,
        health=200 if service.good_t is not None else None,
        served_models=models,
        ranks_alive=s.ranks.alive or None,
        generation_ok=proof.ok,
        speculative=proof.speculative,
        speculative_faults=proof.faults,
        accept_length=proof.accept_length,
        accept_source=proof.accept_source,
        **s.warm.facts,
    )
    return expected, facts


def walks(s: State) -> str:
    """Which path the proof walks, and what is compiled for it since when; empty when it does not."""
    return "; ".join(filter(None, (s.warm.path, compiling(s) if s.warm.path else "")))


def _progress(s: State, detail: Progress | None, outcome: str) -> str | None:
    """What is counted, and what is compiled meanwhile: the first start on a host stands at 0 of 58 graphs
    for a minute (two H200s), and that is no hang."""
    told = outcome == "pending" and s.now - s.compiling_since >= _FLEETING_S
    parts = ["" if detail is None else str(detail), compiling(s) if told else ""]
    return "; ".join(filter(None, parts)) or None


def compiling(s: State) -> str:
    """Which compilers are at work, and since when; empty when none is."""
    if not s.compiling:
        return ""
    since = max(0.0, s.now - s.compiling_since)
    return f"compiling for {since:.0f} s: {', '.join(map(printable, s.compiling))}"
