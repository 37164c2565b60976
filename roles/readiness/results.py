"""What was found out about an engine, as a Result and as lines for the operator."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from roles.readiness.follow import FollowResult
from roles.readiness.subject import Subject
from roles.remote import shape
from roles.remote.shape import WrongShape
from roles.report.result import Result
from sglangctl.diagnosis.causes import CAUSES
from sglangctl.diagnosis.outcomes import PROVEN
from sglangctl.startup import render
from sglangctl.systemd.unit_failure import spawn_step, why
from sglangctl.util.terminal import escaped
from sglangctl.util.values import mapping, number, whole

WALKED = ("warm", "acceptance")
NUMBERS = ("tokens", "tokens_per_s", "ttft_s", "accept_length")


class Unusable(Exception):
    """The answer of `sglangctl verify` cannot be read; the text is one sentence."""


def of_start(subject: Subject, followed: FollowResult) -> Result:
    """The result of a start that did not come to serve."""
    view = followed.summary.view
    outcome = view.outcome if view else None
    evidence = list(view.evidence) if view else []
    if followed.reason == "down" and outcome in ("pending", "serving"):
        outcome = None  # it ended, and the journal does not say so
    elif followed.reason == "late":
        outcome = "deadline"
    cause = view.cause if view else None
    known = CAUSES.get(cause or "")
    state = "/".join(str(followed.unit.get(key, "unknown")) for key in ("active", "sub"))
    result, status = str(followed.unit.get("result", "unknown")), followed.unit.get("exit_status")
    sentence = f"{subject.unit} is {state} (result: {result})"
    following = next_step(subject, cause, evidence=evidence)
    never_ran = spawn_step(status) is not None
    unexplained = followed.reason == "down" and not known
    failure = why(subject.unit, result, status) if never_ran or unexplained else None
    if failure is not None:
        cause = known = None
        outcome, sentence, following = outcome or "failed", failure.sentence, failure.next_step
    if followed.reason == "late":
        budget = render.duration(subject.limits.start_s)
        sentence = f"the start's time limit of {budget} has passed, and {subject.unit} is {state}"
    stopped_by = view.stopped_by if view else None
    if stopped_by:
        known, sentence = None, f"it was {render.stopped(stopped_by)}"
        following = next_step(subject, cause, stopped_by)
    return Result(
        engine=subject.name,
        outcome=outcome,
        exit=1,
        stopped_by=stopped_by,
        cause=cause,
        sentence=known.sentence if known else sentence,
        elapsed_s=round(followed.summary.t, 3) if view else None,
        phase=view.phase if view else None,
        served_after_s=followed.summary.served_after(),
        phases=followed.summary.durations(),
        gpu_memory=followed.gpu_memory,
        evidence=evidence,
        next_step=following,
    )


def next_step(
    subject: Subject,
    cause: str | None,
    stopped_by: str | None = None,
    evidence: Sequence[str] = (),
) -> str:
    if stopped_by:
        return f"deploy it again, or on the host: systemctl start {subject.unit}"
    known = CAUSES.get(cause or "")
    if known is None:
        return f"on the host: sglangctl status {subject.name}; sglangctl logs {subject.name}"
    return known.next_for(subject.name, evidence)


def of_verify(subject: Subject, lines: list[str]) -> Result:
    """The result from `sglangctl verify --json`; Unusable when it is no such document."""
    try:
        found = shape.check(shape.parsed("\n".join(lines)), shape.VERIFY)["verify"]
    except WrongShape:
        raise Unusable(
            f"sglangctl verify {subject.name} did not answer with its document: deploy first, so "
            "that the host has this version of sglangctl"
        ) from None
    status, cause, stopped_by = found["status"], found.get("cause"), found.get("stopped_by")
    return Result(
        engine=subject.name,
        outcome=found.get("outcome"),
        exit=status,
        cause=cause,
        sentence=found.get("sentence") or "",
        generate={key: found.get(key) for key in NUMBERS},
        checks=found.get("checks") or [],
        stopped_by=stopped_by,
        memory=found.get("memory"),
        history=found.get("history") or [],
        next_step=next_step(subject, cause, stopped_by) if status else None,
    )


def with_start(result: Result, followed: FollowResult) -> Result:
    """Add how the start went to what the proof found."""
    view, proof = followed.summary.view, followed.summary.generate
    generate = result.generate
    if generate is not None and proof is not None:
        more: dict[str, Any] = {key: proof[key] for key in WALKED if key in proof}
        generate = {**generate, **more}
    return replace(
        result,
        generate=generate,
        phase=view.phase if view else None,
        served_after_s=followed.summary.served_after(),
        since=followed.summary.served_since(),
        phases=followed.summary.durations(),
        gpu_memory=followed.gpu_memory,
    )


def lines(result: Result) -> list[str]:
    """For the operator: the sentence, the times, the numbers; on failure what shows it."""
    word = result.outcome or ("not running" if result.exit == 1 else "could not be checked")
    taken = result.served_after_s if result.exit == 0 else result.elapsed_s
    after = "" if taken is None else f" after {render.duration(taken)}"
    if result.exit == 0 and result.since is not None:
        after = f" since {render.clock(result.since)} ({after.strip()})"
    if result.stopped_by:
        word = "stopped"
    if result.exit == 1 and result.outcome in PROVEN:
        word += " (and the inventory says: readiness.degraded is a failure)"
    shown = [escaped(f"{result.engine}: {word}{after}")]
    if result.phases:
        shown.append(f"  time per phase: {render.phase_table(result.phases)}")
    numbers = render.answer(result.generate)
    if numbers:
        shown.append(f"  {numbers}")
    memory = memory_line(result.memory)
    if memory:
        shown.append(f"  {memory}")
    walked = render.walks((result.generate or {}).get("warm"))
    if walked:
        shown.append(f"  {walked}")
    if result.exit == 0 and result.outcome == "ready":
        return shown
    if result.cause and not result.stopped_by:
        shown += [f"  {escaped(line)}" for line in explained(result)]
    elif result.sentence:
        shown.append(f"  {escaped(result.sentence)}")
    shown += [f"  {line}" for line in failed_checks(result.checks)]
    if not result.stopped_by:
        shown += [f"  | {line}" for line in render.evidence(result.evidence)]
    if result.exit and result.next_step and (result.stopped_by or not result.cause):
        shown.append(f"  next step: {escaped(result.next_step)}")
    if result.exit == 1 and result.outcome not in PROVEN and not result.stopped_by:
        shown.append(f"  evidence for a report: sglangctl bundle {result.engine} (on the host)")
    return shown


def explained(result: Result) -> list[str]:
    return render.explain(result.engine, result.cause or "", result.evidence)


PARTS = {"weights": "weights_gib", "key/value cache": "cache_gib", "graphs": "graphs_gib"}


def memory_line(memory: Mapping[str, Any] | None) -> str | None:
    """What the engine took of each GPU, and in brackets what was estimated; None where it is not
    known, or nothing was estimated (a CPU)."""
    taken, estimated = (mapping((memory or {}).get(key)) for key in ("taken", "estimated"))
    parts = []
    for label, key in PARTS.items():
        found, wanted = number(taken.get(key)), number(estimated.get(key))
        if found is not None and wanted is not None:
            parts.append(f"{label} {found:.1f} GiB (estimated {wanted:.1f})")
    tokens = whole(taken.get("tokens"))
    if not parts:
        return None
    return f"each GPU: {', '.join([*parts, *([f'{tokens:,} tokens'] if tokens else [])])}"


def failed_checks(checks: Sequence[Mapping[str, Any]]) -> list[str]:
    """One line for each check that is not passed."""
    marks = {False: "not ok", None: "could not be checked"}
    return [
        escaped(f"{check.get('name')}: {marks[check.get('passed')]}: {check.get('detail')}")
        for check in checks
        if check.get("passed") in (False, None)
    ]
