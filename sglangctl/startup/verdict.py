"""Outcome, cause, estimate and evidence from the state of a start."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from sglangctl.startup import progress
from sglangctl.startup.assessment import Assessment
from sglangctl.startup.blame import Blame, blame
from sglangctl.startup.phases import ORDER
from sglangctl.startup.values import number, printable, text, whole

if TYPE_CHECKING:
    from sglangctl.startup.fold import Startup

_HOLD = 0.75
"""Share of `failed_cause_s` that a failure waits for the log's own cause: the rest is left for
the caller's clock."""
_HUNG_S = 20.0
"""A generation without an answer for this long has not been answered."""
_HISTORY_ERROR = 0.3
"""Relative error that is claimed for phases known from the last good start alone."""
FOREIGN = "not an SGLang start: nothing is judged"

Judged = tuple[str, "str | None", tuple[str, ...]]


class Proof:
    """What our own generations showed."""

    def __init__(self) -> None:
        self.ok: bool | None = None
        """The last answer's text was sane; None: unknown."""
        self.came = False
        """A generation came back with status 200."""
        self.hung = False
        """The last one was not answered."""
        self.model: str | None = None
        self.accept_length: float | None = None
        self.speculative: str | None = None
        """The algorithm that runs, "" for none; None: unknown."""
        self.faults: tuple[str, ...] = ()
        """What differs from the drafter that was declared."""
        self.tokens_per_s: float | None = None
        self.error = ""

    def feed(self, t: float, event: dict[str, Any]) -> bool:
        """Take a generate event; whether it came back well."""
        status = whole(event.get("status"))
        seconds = number(event.get("seconds")) or 0.0
        self.hung = status is None and seconds >= _HUNG_S
        if status != 200:
            reason = text(event.get("error")) or f"status {status}"
            self.error = f"the last generation failed: {printable(reason)}"
            return False
        ok = event.get("text_ok")
        self.came, self.ok, self.error = True, ok if isinstance(ok, bool) else None, ""
        self.model = text(event.get("model")) or self.model
        self.accept_length = number(event.get("accept_length"))
        self.speculative = text(event.get("speculative"))
        faults = event.get("speculative_faults")
        self.faults = (
            tuple(x for x in faults if isinstance(x, str)) if isinstance(faults, list) else ()
        )
        self.tokens_per_s = number(event.get("tokens_per_s"))
        if self.ok is False:
            self.error = "the last generation came back with text that makes no sense"
        return True


@dataclass(frozen=True)
class _Estimate:
    key: tuple[str, int, int, str]
    seconds: float | None
    error: float | None
    until: str | None


class Judge:
    """Keeps the verdict that is final and what was computed last."""

    def __init__(self) -> None:
        self._failed: Blame | None = None
        self._estimate: _Estimate | None = None
        self._evidence: tuple[tuple[Any, ...], tuple[str, ...]] | None = None

    def assess(self, s: Startup) -> Assessment:
        """The assessment at `s.now`."""
        if s.launched.foreign:
            return Assessment(
                s.now, s.phases.name, "pending", None, None, None, None, None, None, (FOREIGN,)
            )
        outcome, cause, telling = self._outcome(s)
        counter = None if s.served else s.work.best(s.now, s.phases.name)
        detail = None if counter is None else progress.shown(counter)
        estimate = self._eta(s, counter, outcome)
        return Assessment(
            t=s.now,
            phase=s.phases.name,
            outcome=outcome,
            cause=cause,
            progress=None if detail is None else str(detail),
            detail=detail,
            eta_s=estimate.seconds,
            eta_error_s=estimate.error,
            eta_until=estimate.until,
            evidence=telling or self._state(s, outcome),
        )

    def due(self, s: Startup) -> float | None:
        """When `assess` may differ by time alone; None: never."""
        if s.launched.foreign:
            return None
        times: list[float] = []
        crash = s.failures.crash
        if crash is not None:
            times.append(crash.t + _HOLD * s.limits.failed_cause_s)
        if s.lines.tail:
            times.append(s.lines.tail_t + 0.5)
        if self._failed is None:
            if s.served:
                if s.service.failed or s.proof.hung:
                    times.append(s.now + 1.0)
            else:
                times += [s.motion.stalled_at(s.limits), s.limits.start_s]
        later = [t for t in times if t > s.now]
        return min(later, default=None)

    def _outcome(self, s: Startup) -> Judged:
        crash = s.failures.crash
        if crash is not None:
            failed = self._fail(s)
            if failed is not None:
                return ("failed", failed.cause, failed.evidence)
        if s.stopped_t is not None and not s.service.stopping:
            outcome = "unresponsive" if s.served else "stalled"
            return (outcome, "rank-stopped", _stopped(s))
        if s.served:
            return self._serving(s)
        if s.now >= s.limits.start_s:
            return ("deadline", None, ())
        if s.now >= s.motion.stalled_at(s.limits):
            return ("stalled", None, ())
        return ("pending", None, ())

    def _fail(self, s: Startup) -> Blame | None:
        """The failure's cause; None while the log is about to name it.

        A cause that is not sure may still be bettered within `failed_cause_s`.
        """
        crash = s.failures.crash
        assert crash is not None
        if self._failed is not None and (
            self._failed.sure or s.now > crash.t + s.limits.failed_cause_s
        ):
            return self._failed
        best = blame(s, crash)
        # What the engine says itself comes after the words of the process that died; a process
        # event may come before them, and a traceback's last line is the one that counts.
        waiting = s.failures.open or crash.source == "process"
        settled = s.now >= crash.t + _HOLD * s.limits.failed_cause_s or s.exit is not None
        if best.sure or settled or not waiting or self._failed is not None:
            self._failed = best
        return self._failed

    def _serving(self, s: Startup) -> Judged:
        if s.service.silent(s.now, s.limits, s.working_t):
            return ("unresponsive", None, ())
        proof = s.proof
        if proof.hung and not s.service.loaded and s.working_t is None:
            return ("unresponsive", None, (f"health answers, yet {proof.error}",))
        if not proof.ok:
            return ("serving", None, ())
        missing = _not_ready(s)
        if missing:
            return ("serving", None, (missing,))
        worse = _degraded(s)
        if worse:
            return ("degraded", None, worse)
        return ("ready", None, ())

    def _eta(self, s: Startup, counter: progress.Counter | None, outcome: str) -> _Estimate:
        if s.served or outcome == "failed":
            return _NO_ESTIMATE
        phase = s.phases.name
        key = (phase, -1 if counter is None else counter.done, int(s.now), outcome)
        known = self._estimate
        if known is None or known.key != key:
            seconds, error, until = _estimate(s, counter)
            known = self._estimate = _Estimate(key, seconds, error, until)
        return known

    def _state(self, s: Startup, outcome: str) -> tuple[str, ...]:
        """What is seen, for an outcome that no single line proves."""
        key = (outcome, s.phases.name, int(s.now), s.served, s.service.failed, s.proof.ok)
        if self._evidence is None or self._evidence[0] != key:
            self._evidence = (key, tuple(_state(s, outcome)))
        return self._evidence[1]


_NO_ESTIMATE = _Estimate(("", 0, 0, ""), None, None, None)


def _not_ready(s: Startup) -> str:
    """Why a good generation does not make it ready yet; empty when it does."""
    wanted = s.launched.served_name
    found = s.service.models if s.service.models is not None else s.proof.model and (s.proof.model,)
    if wanted and found and wanted not in found:
        return f"the port serves {', '.join(map(printable, found))}, not {printable(wanted)}"
    world = s.launched.world
    if s.ranks.seen and s.ranks.alive and world is not None and s.ranks.alive < world:
        return f"{s.ranks.alive} of {world} ranks are alive"
    return ""


def _degraded(s: Startup) -> tuple[str, ...]:
    """What should be better about a start that is proven to serve."""
    if not s.launched.speculative:
        return ()
    proof = s.proof
    found: list[str] = []
    if proof.speculative == "":
        declared = printable(s.launched.algorithm or "a drafter")
        found.append(f"speculative decoding is off, declared is {declared}")
    found += [f"speculative decoding: {printable(fault)}" for fault in proof.faults]
    accept, floor = proof.accept_length, s.launched.min_accept_length
    if accept is not None and accept < floor:
        found.append(f"accept length {accept:.2f} is below {floor:g}: the drafter is of no use")
    return tuple(found)


def _estimate(
    s: Startup, counter: progress.Counter | None
) -> tuple[float | None, float | None, str | None]:
    """Seconds, half the width, and until what."""
    phase = s.phases.name
    counted = counter.eta(s.now) if counter is not None else None
    history = s.launched.history
    if not history:
        if counted is None:
            return (None, None, None)
        return (round(counted[0], 1), round(counted[1], 1), phase)
    if counted is not None:
        left, error = counted
    else:
        left = history.get(phase, 0.0) - (s.now - s.phases.since)
        if left <= 0:
            # A phase that the last start did not have, or that takes longer now: nothing is known.
            return (None, None, None)
        error = _HISTORY_ERROR * left
    later = sum(
        seconds
        for name, seconds in history.items()
        if ORDER.get(name, -1) > ORDER[phase] and name != "serving"
    )
    return (round(left + later, 1), round(error + _HISTORY_ERROR * later, 1), "serving")


def _stopped(s: Startup) -> tuple[str, ...]:
    since = f"since {s.stopped_t:.0f} s after the launch" if s.stopped_t is not None else ""
    if s.ranks.stopped:
        return (f"stopped (state T) {since}: {', '.join(map(printable, s.ranks.stopped))}",)
    return (f"the cgroup is frozen {since}",)


def _state(s: Startup, outcome: str) -> list[str]:
    lines: list[str] = []
    service = s.service
    if s.served:
        if outcome == "unresponsive":
            since = s.now - (service.good_t or 0.0)
            lines.append(
                f"no good answer for {since:.0f} s, {service.failed} health probes failed since"
            )
            if service.engine_says_dead:
                lines.append("the engine's own health check failed (20 s without an answer)")
        elif service.proof:
            lines.append(service.proof)
        lines.append(service.identity)
        if s.proof.error:
            lines.append(s.proof.error)
        elif outcome in ("serving",) and not s.proof.came:
            lines.append("not yet proven by a generation")
        if outcome == "ready" and s.launched.speculative and s.proof.accept_length is None:
            lines.append("accept length: cannot tell")
        return lines
    motion = s.motion
    quiet = s.now - motion.last
    if outcome == "stalled":
        lines.append(f"nothing moved for {quiet:.0f} s (last: {motion.what})")
    elif outcome == "deadline":
        lines.append(f"the budget of {s.limits.start_s:.0f} s is spent; last moved: {motion.what}")
    elif quiet >= 10.0:
        lines.append(f"last moved {quiet:.0f} s ago: {motion.what}")
    if motion.cpu_known:
        still = s.now - motion.cpu_last
        moving = "moves" if still < 10.0 else f"flat for {still:.0f} s"
        lines.append(f"processor time {moving}")
    if s.gpus:
        used = [now for now, _ in s.gpus]
        total = max(size for _, size in s.gpus)
        idle = "busy" if motion.gpu_busy else "at 0 %"
        lines.append(
            f"{len(used)} GPUs {idle}, {min(used) / 1024:.1f} to {max(used) / 1024:.1f} of "
            f"{total / 1024:.0f} GiB used"
        )
    if s.phases.from_gpu:
        lines.append("the log lags: the phase is told by GPU memory")
    if service.answered_foreign:
        lines.append("something answers on the port, and nothing shows that it is this engine")
    return lines
