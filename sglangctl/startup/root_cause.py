"""From a certain failure to its cause, with the evidence for it.

Exit -9 is SGLang's own way of dying as well as the OOM killer's and a person's: its own is
announced in the log, the OOM killer's is counted by the cgroup, what is left came from outside.
"""

from __future__ import annotations

from dataclasses import dataclass

from sglangctl.diagnosis.classify import classify
from sglangctl.diagnosis.outcomes import ORDER
from sglangctl.startup.failures import RECENT_S, Candidate, Crash
from sglangctl.startup.state import State
from sglangctl.util.values import printable, whole

# An Xid explains these better than the line that follows from it.
_FOLLOW_XID = ("nccl-error", "nccl-timeout", "gpu-fault", "watchdog", "rank-died")
_SIGNALS = (-15, -9, -2, -1)
_SIGBUS = -7
_TELLING = 3


@dataclass(frozen=True)
class RootCause:
    """The cause of a failure; not `sure`: the log may still name a better one."""

    cause: str
    sure: bool
    evidence: tuple[str, ...]
    stopped_by: str | None = None
    """Who asked for this end, of one that was wanted."""


def root_cause(startup: State, crash: Crash) -> RootCause:
    """The best cause that is known now for `crash`."""
    if crash.source == "bind" and (named := classify(crash.text, startup.context)) is not None:
        return RootCause(named.cause, True, (*_holder(startup, named.cause), *_log(crash.text)))
    if crash.source == "held":
        return RootCause("port-taken", True, _log(crash.text))
    code = _code(startup, crash)
    own = startup.failures.own
    ended = startup.exit is not None
    told = startup.stop_asked or startup.service.stopping
    if told and (ended or crash.source == "warmup"):
        # Told to end before its warm-up's first request, SGLang closes its port and waits two
        # minutes for an answer that cannot come any more.
        return _outside(startup, crash)
    if _oom(startup, crash) and code in (-9, None):
        text = "the kernel's OOM killer ended a process of this engine (oom_kill rose)"
        return RootCause("host-out-of-memory", True, (text, *_log(crash.text)))
    xid = whole(startup.exit.get("xid")) if startup.exit is not None else None
    outside = ended and not own and crash.source in ("exit", "process")
    if outside and code in _SIGNALS and xid is None:
        # Its own exceptions end with another status, or it says that it fails before it dies.
        return _outside(startup, crash)
    said = _said(startup, crash, effect=False)
    if xid is not None and (said is None or said.finding.cause in _FOLLOW_XID):
        return RootCause("gpu-fault", True, (f"kernel log: Xid {xid}", *_log(crash.text)))
    if said is not None:
        where = f"{said.rank}: " if said.rank else ""
        seen = [f"log: {where}{printable(said.finding.line)}"]
        if said.finding.cause in ("weights-corrupt", "weights-missing"):
            seen = [*map(printable, startup.damaged[:_TELLING]), *seen]
        if said.finding.note:
            seen.append(printable(said.finding.note))
        elif said.finding.vague:
            seen += [line for line in _telling(startup) if line not in seen]
        return RootCause(said.finding.cause, not said.finding.vague, tuple(seen[: 2 * _TELLING]))
    if code == _SIGBUS:
        return _sigbus(startup, crash)
    if outside and code == 0 and startup.served:
        return _outside(startup, crash)
    if startup.failures.no_tokenizer and startup.phases.name == "warming":
        # An empty tokenizer makes the first request one of no tokens, which breaks the model.
        text = f"log: {printable(startup.failures.no_tokenizer)}"
        return RootCause("tokenizer-missing", False, (text, *_telling(startup)))
    after = _said(startup, crash, effect=True)
    if crash.source == "warmup":
        return RootCause("warmup-failed", False, (*_log(crash.text), *_telling(startup)))
    if after is not None:
        text = f"log: {printable(after.finding.line)}"
        return RootCause(after.finding.cause, False, (*_log(crash.text), text))
    if crash.source in ("rank", "process") or (
        crash.source == "child" and not startup.failures.exceptions
    ):
        return RootCause("rank-died", False, (*_log(crash.text), *_telling(startup)))
    return _unknown(startup, crash)


def _holder(startup: State, cause: str) -> tuple[str, ...]:
    """Who has the port, where the last look at it saw somebody else."""
    if cause != "port-taken" or startup.service.held_t is None:
        return ()
    return (f"port {startup.launched.port or ''} is held by {startup.service.held_by}",)


def _said(startup: State, crash: Crash, effect: bool) -> Candidate | None:
    """The line that names the cause.

    Of a rank's own end first, then the earliest; a vague one only where no line says why. What an
    engine may say and go on counts beside a vague one, or where no other exception ended it.
    """
    recent = [
        candidate
        for candidate in startup.failures.candidates
        if candidate.finding.effect is effect and candidate.t >= crash.t - RECENT_S
    ]
    fatal = [candidate for candidate in recent if candidate.fatal]
    if not fatal and any(item.fatal for item in startup.failures.exceptions):
        recent = [candidate for candidate in recent if not candidate.finding.hint]
    for pool in (fatal, recent):
        for candidate in pool:
            if not candidate.finding.vague:
                return candidate
    return next(iter(fatal or recent), None)


def _code(startup: State, crash: Crash) -> int | None:
    """Exit status of the process that died first; 128 + n is signal n."""
    code = crash.code
    if code is None and startup.exit is not None:
        code = whole(startup.exit.get("returncode"))
    return 128 - code if code is not None and 128 < code < 193 else code


def _oom(startup: State, crash: Crash) -> bool:
    """Whether the kernel's OOM killer was at work when it died, not long before."""
    event, ranks = startup.exit or {}, startup.ranks
    kills = whole(event.get("oom_kills"))
    if kills is not None and kills > ranks.oom_kills:
        return True
    if kills is None and event.get("oom") is True:
        return True
    return ranks.oom_t is not None and ranks.oom_t >= crash.t - RECENT_S


def _outside(startup: State, crash: Crash) -> RootCause:
    cause = "killed" if startup.served else "terminated"
    by = (printable(startup.stop_by) or "systemd") if startup.stop_asked else None
    return RootCause(cause, True, (printable(crash.text),), by)


def _sigbus(startup: State, crash: Crash) -> RootCause:
    event = startup.exit or {}
    evidence = (f"SIGBUS (exit -7) in phase {startup.phases.name}", *_log(crash.text))
    phase = ORDER[startup.phases.name]
    if not startup.phases.ranks and phase < ORDER["connecting"]:
        cause = "kernel-broken"
    elif startup.phases.name == "loading":
        cause = "weights-corrupt"
        evidence = (*map(printable, startup.damaged[:_TELLING]), *evidence)
    elif event.get("shm_full") is True or not startup.served:
        cause = "shared-memory"
    else:
        cause = "unknown"
    return RootCause(cause, True, evidence)


def _unknown(startup: State, crash: Crash) -> RootCause:
    return RootCause("unknown", False, (*_telling(startup), *_log(crash.text)))


def _telling(startup: State) -> tuple[str, ...]:
    """The first exception of the first rank that died, then others that differ."""
    raised = startup.failures.exceptions
    lines: list[str] = []
    for item in [r for r in raised if r.fatal] + [r for r in raised if not r.fatal]:
        for text in (item.text, item.detail):
            line = f"log: {item.rank + ': ' if item.rank else ''}{printable(text)}"
            if text and line not in lines:
                lines.append(line)
    return tuple(lines[:_TELLING])


def _log(text: str) -> tuple[str, ...]:
    return (printable(text),)
