"""One run of free: the escalation, the proof, the leftovers, and the result."""

from __future__ import annotations

import os
import time
from collections.abc import Sequence

from sglangctl.free import leftovers, settling, text, verdicts
from sglangctl.free.escalation import Emit, Escalation, Recorder, Say
from sglangctl.free.model import FreeResult, Leftover, Plan, Situation
from sglangctl.holders.survey import Holder
from sglangctl.util import terminal
from sglangctl.util.heartbeat import heartbeat


def execute(plan: Plan, say: Say, emit: Emit | None) -> FreeResult:
    """See `sglangctl.free.execute`."""
    recorder = Recorder(say, emit)
    situation = plan.situation
    if situation is None:
        raise ValueError("a plan that was read from a document cannot be carried out")
    if plan.refused:
        return refused(plan, recorder)
    cannot = _cannot(plan, situation)
    if cannot is not None:
        recorder.step(cannot)
        return FreeResult(1, cannot, verdicts.CANNOT_LOOK)
    began = time.monotonic()
    belongings = leftovers.collect(_to_end(plan))
    escalation = Escalation(plan, recorder)
    verdict = escalation.run()
    left: list[Leftover] = []
    if verdict is None:
        what = f"{text.where(plan)} to become free"
        with heartbeat(recorder.step, what, plan.limits.devices_s):
            verdict, seen = settling.wait(plan, situation)
        left += _ports(plan, seen.port_owners)
    if verdict is None:
        # A unit that was stopped stays down; what was ended singly may be started again.
        alone = bool(plan.processes_to_end or plan.containers_to_stop)
        if plan.units_to_stop or alone:
            verdict = settling.watch(plan, situation, plan.limits.respawn_s if alone else 0.0)
    if escalation.ended or escalation.units_stopped:
        left += leftovers.remove(belongings)
    for item in left:
        verb = "removed" if item.removed else "left"
        recorder.step(f"{verb} {item.kind} {text.short(item.what)}: {item.reason}")
    seconds = time.monotonic() - began
    sentence = terminal.escaped(
        verdict.sentence if verdict else _success(plan, escalation, seconds)
    )
    recorder.step(sentence, verdict=verdict.name if verdict else verdicts.FREE)
    return FreeResult(
        status=0 if verdict is None else 1,
        sentence=sentence,
        verdict=verdict.name if verdict else verdicts.FREE,
        seconds=seconds,
        ended=tuple(escalation.ended),
        units_stopped=tuple(escalation.units_stopped),
        leftovers=tuple(left),
    )


def refused(plan: Plan, recorder: Recorder) -> FreeResult:
    """Nothing is changed; every line says who, why, and what would allow it."""
    for refusal in plan.refused:
        recorder.event(
            "holder",
            pid=refusal.pid,
            **{"class": refusal.class_},
            reason=refusal.reason,
            gpus=refusal.gpus,
            title=refusal.who,
        )
    lines = text.plan_lines(plan)
    for line in lines:
        recorder.step(line)
    sentence = text.refusal_sentence(plan)
    return FreeResult(3, terminal.escaped(sentence), verdicts.REFUSED)


def _cannot(plan: Plan, situation: Situation) -> str | None:
    """Why this process is not able to do it at all."""
    if os.geteuid() != 0 and (not plan.empty or situation.unreadable):
        return "this needs root: without it neither all holders can be seen nor ended"
    if plan.processes_to_end and not situation.pidfds:
        return (
            "this kernel or Python has no pidfds (Linux 5.3, Python 3.9), and without them a "
            "process may be mistaken for another: end them yourself"
        )
    return None


def _to_end(plan: Plan) -> set[int]:
    """All processes that the plan would end."""
    pids = {holder.pid for holder in plan.processes_to_end}
    pids.update(pid for step in plan.units_to_stop for pid in step.pids)
    pids.update(pid for box in plan.containers_to_stop for pid in box.pids)
    return pids


def _ports(plan: Plan, owners: Sequence[Holder]) -> list[Leftover]:
    """The engine's port, where somebody still listens on it."""
    return [
        Leftover(
            "port",
            str(plan.port),
            f"{owner.pid} {text.short(owner.title)} ({owner.class_}"
            f"{', ' + owner.unit if owner.unit else ''}) listens on it: not ended, "
            "it uses none of these GPUs",
        )
        for owner in owners
        if owner.class_ != "ours" or plan.stop
    ]


def _success(plan: Plan, escalation: Escalation, seconds: float) -> str:
    where, word = text.where(plan), "down" if plan.targets == () else "free"
    parts = []
    if escalation.units_stopped:
        parts.append(f"{', '.join(escalation.units_stopped)} stopped")
    if plan.containers_to_stop:
        parts.append(f"{', '.join(box.name for box in plan.containers_to_stop)} stopped")
    if escalation.ended:
        parts.append(f"{text.processes(len(escalation.ended))} ended")
    return f"{where}: {word}" + (f" ({', '.join(parts)}, {seconds:.1f} s)" if parts else "")
