"""Notes of a plan for the operator: what starts again by itself, what cannot be checked. Pure."""

from __future__ import annotations

from collections.abc import Iterator

from sglangctl.free import model
from sglangctl.free.model import Plan, Situation
from sglangctl.holders.classes import ENGINE, FOREIGN
from sglangctl.proc import open_files

NAMED = 20
"""Processes that one note names."""


def of(plan: Plan, situation: Situation) -> tuple[str, ...]:
    """The notes of a plan, each once."""
    return tuple(dict.fromkeys(_notes(plan, situation)))


def by_hand(plan: Plan, situation: Situation) -> list[int]:
    """Processes of the plan that nothing can start again: without a service and a container."""
    refused = {refusal.pid for refusal in plan.refused if refusal.class_ == ENGINE}
    ended = {holder.identity for holder in plan.processes_to_end}
    return sorted(
        holder.pid
        for holder in situation.holders
        if (holder.identity in ended and holder.class_ in (ENGINE, FOREIGN))
        or holder.pid in refused
        if not model.is_a_service(holder.system_unit or "") and not holder.container
    )


def _notes(plan: Plan, situation: Situation) -> Iterator[str]:
    pids = by_hand(plan, situation)
    if pids:
        named = ", ".join(map(str, pids[:NAMED]))
        named += f" and {len(pids) - NAMED} more" if len(pids) > NAMED else ""
        yield f"started by hand, without a unit of their own ({named}): nothing to go back to"
    for step in plan.units_to_stop:
        for trigger in step.triggered_by:
            yield (
                f"{trigger} starts {step.unit} again: put {trigger} into `replaces` as well, "
                f"or: systemctl disable --now {trigger}"
            )
        if step.class_ in (ENGINE, FOREIGN):
            yield (
                f"{step.unit} is stopped and not disabled, it comes back at the next boot: "
                f"put it into `replaces` of {plan.engine}"
            )
    for holder in plan.processes_to_end:
        unit = (situation.units or {}).get(holder.system_unit or "")
        if unit is not None and unit["Restart"] not in ("", "no"):
            yield (
                f"{unit.name} has Restart={unit['Restart']} and will start {holder.pid} again: "
                f"put it into `replaces` of {plan.engine}"
            )
        box = situation.containers.get(holder.container or "")
        if box is not None and box.restart not in ("", "no"):
            yield (
                f"the container {box.name} has the restart policy {box.restart}: name it under "
                "`containers` in the inventory, and it is stopped through its engine"
            )
    if situation.reading.gpus is None:
        yield f"memory on the GPUs cannot be checked: {situation.reading.reason}"
    for name in situation.engine.replaces:
        replaced = (situation.units or {}).get(name)
        if replaced is not None and not replaced.exists:
            yield (
                f"`replaces` of {plan.engine} names {name}, and this host has no such unit (removed "
                "since, or misspelt)"
            )
    if situation.units is None and situation.engine.replaces and not situation.unseen:
        yield "systemd is not the init of this machine: no unit in `replaces` can be stopped"
    if situation.unreadable:
        yield f"{situation.unreadable} processes could not be looked at: run it as root"
    if situation.unfinished:
        yield open_files.not_complete(situation.unfinished)
    if not situation.pidfds:
        yield "this kernel or Python has no pidfds (Linux 5.3): single processes are not ended"
