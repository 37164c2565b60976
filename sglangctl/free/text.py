"""Plans as text, one line an item, and as JSON."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from sglangctl.free.model import NOBODY, UNSEEN, Plan, Refusal, UnitStep, document
from sglangctl.holders.survey import Holder
from sglangctl.util import terminal

TITLE = 70
MOST, SHOWN = 200, 50
"""Processes that may not be ended, in the document and as lines: any user can have 30,000 of them."""


def plan_lines(plan: Plan) -> list[str]:
    """The plan as it is shown before anything is done."""
    return [terminal.escaped(line) for line in _lines(plan)]


def plan_document(plan: Plan) -> dict[str, Any]:
    """The plan as JSON: field names as in Plan, but `class`; `lines` is what people are shown."""
    return {
        "engine": plan.engine,
        "policy": plan.policy,
        "stop": plan.stop,
        "targets": plan.targets,
        "units_to_stop": [document(step) for step in plan.units_to_stop],
        "containers_to_stop": [document(step) for step in plan.containers_to_stop],
        "processes_to_end": [holder.to_json() for holder in plan.processes_to_end],
        "refused": [document(refusal) for refusal in plan.refused[:MOST]],
        "kept": [holder.to_json() for holder in plan.kept[:MOST]],
        "notes": plan.notes,
        "port": plan.port,
        "empty": plan.empty,
        "lines": plan_lines(plan),
    }


def gpus_text(targets: Iterable[int] | None) -> str:
    """`GPUs 0, 1`, `GPU 0`, `all GPUs`."""
    if targets is None:
        return "all GPUs"
    numbers = sorted(targets)
    return f"GPU{'' if len(numbers) == 1 else 's'} {', '.join(map(str, numbers))}"


def processes(number: int) -> str:
    """`1 process`, `2 processes`."""
    return f"{number} process{'' if number == 1 else 'es'}"


def short(title: str) -> str:
    return terminal.cut(terminal.escaped(title), TITLE)


def where(plan: Plan) -> str:
    """What a plan frees."""
    if plan.targets == ():
        return f"what {plan.engine} replaces"
    return f"{gpus_text(plan.targets)} of {plan.engine}"


def _lines(plan: Plan) -> Iterator[str]:
    about = where(plan)
    if plan.refused:
        why = f"{_first(plan)} may not be ended, and uses {about}"
        if plan.blind:
            why = f"{about} cannot be freed while systemd does not answer"
        elif all(refusal.class_ == NOBODY for refusal in plan.refused):
            why = f"memory of {about} belongs to no process that can be seen from here"
        yield f"refused, nothing is changed: {why}"
        shown = plan.refused[:SHOWN]
        for refusal, after in zip(shown, [*shown[1:], None]):
            # Processes of one unit have one remedy: it is said behind the last of them.
            yield from _refusal(refusal, last=after is None or after.allow != refusal.allow)
        yield from _more(plan.refused)
    elif plan.empty:
        yield f"{about}: nothing is in the way"
    would = "otherwise it would " if plan.refused else ""
    for step in plan.units_to_stop:
        yield would + _unit(step)
        yield from _with_it(plan, step)
    for box in plan.containers_to_stop:
        yield f"{would}stop the container {box.name} ({box.command}): the inventory names it"
    for holder in plan.processes_to_end:
        yield f"{would}end {_holder(holder)}: {holder.reason}"
    for holder in plan.kept[:SHOWN]:
        yield f"stays: {_holder(holder)}: {holder.reason}"
    yield from _more(plan.kept)
    for note in plan.notes:
        yield f"note: {note}"


def _first(plan: Plan) -> str:
    """Who is in the way; of several the first."""
    first = plan.refused[0]
    pid = [] if first.pid is None else [f"pid {first.pid}"]
    more = [f"and {len(plan.refused) - 1} more"] if len(plan.refused) > 1 else []
    about = ", ".join([*pid, *more])
    return short(first.who) + (f" ({about})" if about else "")


def _more(found: Sequence[object]) -> Iterator[str]:
    if len(found) > SHOWN:
        yield f"  and {len(found) - SHOWN} more"


def _with_it(plan: Plan, step: UnitStep) -> Iterator[str]:
    """The processes that end with a unit, those without a GPU too; titles where they are known."""
    known = {holder.pid: holder for holder in plan.situation.holders} if plan.situation else {}
    for pid in step.pids[:SHOWN]:
        holder = known.get(pid)
        yield f"  ends with it: {_holder(holder)}" if holder else f"  ends with it: {pid}"
    yield from _more(step.pids)


def _unit(step: UnitStep) -> str:
    state = [step.active_state, step.enabled or "no unit file"]
    if step.pids:
        state.append(processes(len(step.pids)))
    verb = "stop and disable" if step.disable else "stop"
    return f"{verb} {step.unit} ({step.class_}; {', '.join(state)}): {step.reason}"


def _holder(holder: Holder) -> str:
    facts = [holder.class_]
    if holder.uses:
        facts.append(gpus_text(holder.uses))
    known = [mib for mib in holder.memory_mib.values() if mib is not None]
    if known:
        facts.append(f"{sum(known)} MiB")
    facts.append(f"user {holder.user}")
    if holder.container:
        facts.append(f"container {holder.container_name or holder.container[:12]}")
    return f"{holder.pid} {short(holder.title)} ({', '.join(facts)})"


def refusal_sentence(plan: Plan) -> str:
    """Why a refused plan changes nothing, by its first refusal, and the next step."""
    first = plan.refused[0]
    if first.class_ == NOBODY:
        return f"nothing was changed: {first.reason}; {first.allow}"
    if first.class_ == UNSEEN:
        return f"nothing was changed: cannot look at {first.who}: {first.reason}; {first.allow}"
    who = f"{first.pid} {short(first.who)}" if first.pid else short(first.who)
    more = f" and {len(plan.refused) - 1} more" if len(plan.refused) > 1 else ""
    return (
        f"nothing was changed: {who}{more} may not be ended ({first.class_}: {first.reason}); "
        f"allowed by: {first.allow}"
    )


def _refusal(refusal: Refusal, last: bool) -> Iterator[str]:
    if refusal.class_ == NOBODY:
        yield f"  {refusal.reason}; {refusal.allow}"
        return
    if refusal.class_ == UNSEEN:
        yield f"  cannot look at {refusal.who}: {refusal.reason}; {refusal.allow}"
        return
    who = short(refusal.who)
    if refusal.pid is not None:
        who = f"{refusal.pid} {who}"
    facts = [refusal.class_, *([gpus_text(refusal.gpus)] if refusal.gpus else [])]
    yield f"  {who} ({', '.join(facts)}): {refusal.reason}"
    if last:
        yield f"    allowed by: {refusal.allow}"
