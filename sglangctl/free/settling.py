"""After the escalation: wait until the GPUs are free, and find out what starts again by itself."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass

from sglangctl.free import model, planning, text, verdicts
from sglangctl.free.model import Plan, Situation
from sglangctl.free.verdicts import Verdict
from sglangctl.holders import survey
from sglangctl.holders.survey import Holder
from sglangctl.proc import freezer, procfs
from sglangctl.systemd import containers
from sglangctl.systemd.unit import show

POLL_S = 0.1
WEDGED_S = 3.0
"""nvidia-smi's utilization is that of the last second or so: wait until it can be of now."""


@dataclass(frozen=True)
class Look:
    """One look after the escalation."""

    blocking: tuple[Holder, ...]
    protected: tuple[int, ...]
    port_owners: tuple[Holder, ...]
    verdict: Verdict | None
    """About the GPUs' own numbers."""


def look(plan: Plan, situation: Situation) -> Look:
    """Who is on the engine's GPUs now, and what the GPUs say of themselves."""
    engine = situation.engine
    looked = survey.survey([engine.port])
    context = survey.context_for(
        engine, situation.host, situation.siblings, situation.units or {}, situation.waiting
    )
    found = looked.holders(context)
    targets = planning.targets_of(situation)
    on = [item for item in found if planning.in_the_way(item, targets)]
    kept = [item for item in on if planning.is_kept(item, situation, targets)]
    return Look(
        blocking=tuple(item for item in on if item not in kept),
        protected=tuple(item.pid for item in kept),
        port_owners=tuple(item for item in found if item.ports),
        verdict=verdicts.of_gpus(
            looked.reading.gpus, plan.targets, [item.pid for item in kept], plan.limits
        ),
    )


def wait(plan: Plan, situation: Situation) -> tuple[Verdict | None, Look]:
    """Until the GPUs are free, or it is clear that they will not be."""
    began = time.monotonic()
    wedged_since = None
    pause = POLL_S
    while True:
        seen = look(plan, situation)
        new = [item for item in seen.blocking if not _known(item, situation)]
        if new:
            return respawned(new[0], plan, situation), seen
        if not seen.blocking and seen.verdict is None:
            return None, seen
        now = time.monotonic()
        if seen.verdict is not None and seen.verdict.name == verdicts.WEDGED:
            wedged_since = now if wedged_since is None else wedged_since
            if now - wedged_since >= WEDGED_S:
                return seen.verdict, seen
        else:
            wedged_since = None
        if now - began >= plan.limits.devices_s or _hopeless(seen):
            return _timed_out(seen, plan), seen
        time.sleep(pause)
        pause = min(pause * 1.5, 1.0)


def watch(plan: Plan, situation: Situation, seconds: float) -> Verdict | None:
    """Watch for what comes back: single processes have no stop that would hold them down."""
    end = time.monotonic() + seconds
    while True:
        back = _unit_back(plan)
        if back is not None:
            return back
        if seconds <= 0:
            return None  # `wait` has just looked at everything else
        new = [item for item in look(plan, situation).blocking if not _known(item, situation)]
        if new:
            return respawned(new[0], plan, situation)
        if time.monotonic() >= end:
            return None
        time.sleep(0.25)


def respawned(new: Holder, plan: Plan, situation: Situation) -> Verdict:
    """Name what brought it (back): a unit, a container's restart policy, its parent."""
    before = [
        holder
        for holder in situation.holders
        if holder.command == new.command or holder.title == new.title
    ]
    verb = "is back as" if before else "appeared meanwhile as"
    who = f"{text.short(new.title)} {verb} {new.pid}"
    return Verdict(verdicts.RESPAWNED, f"{who}: {_bringer(new, plan)}")


def _bringer(new: Holder, plan: Plan) -> str:
    if new.container:
        box = containers.inspect({new.container: new.container_engine}).get(new.container)
        name = box.name if box else new.container[:12]
        policy = f" has the restart policy {box.restart}" if box else " runs it"
        return (
            f"the container {name}{policy}; name it under `containers` in the inventory, and it "
            "is stopped through its engine"
        )
    if new.system_unit and model.is_a_service(new.system_unit):
        unit = (show([new.system_unit]) or {}).get(new.system_unit)
        facts = []
        if unit is not None and unit["Restart"] not in ("", "no"):
            facts.append(f"has Restart={unit['Restart']}")
        if unit is not None and unit.triggers:
            facts.append(f"is started by {', '.join(unit.triggers)}")
        return (
            f"{new.system_unit} {' and '.join(facts) or 'runs it'}; put it into `replaces` of "
            f"{plan.engine}"
        )
    parent = procfs.stat(new.ppid)
    if new.ppid > 1 and parent is not None:
        title = text.short(" ".join(procfs.cmdline(new.ppid)) or parent.comm)
        return f"its parent {new.ppid} ({title}) starts it; end that first"
    return "what started it is unknown: find it first"


def _unit_back(plan: Plan) -> Verdict | None:
    """A unit of the plan that runs again."""
    names = [step.unit for step in plan.units_to_stop]
    for unit in (show(names) or {}).values():
        if unit.running:
            by = f" (by {', '.join(unit.triggers)})" if unit.triggers else ""
            return Verdict(
                verdicts.RESPAWNED,
                f"{unit.name} was started again{by}: put what starts it into `replaces` of "
                f"{plan.engine}, or stop that first",
            )
    return None


def _known(item: Holder, situation: Situation) -> bool:
    """Whether it was there when the plan was made."""
    return any(holder.identity == item.identity for holder in situation.holders)


def _hopeless(seen: Look) -> bool:
    """What waiting cannot change."""
    return (
        not seen.blocking
        and seen.verdict is not None
        and seen.verdict.name in (verdicts.UNKNOWN_GPU, verdicts.MEMORY_OF_PROTECTED)
    )


def _timed_out(seen: Look, plan: Plan) -> Verdict:
    if seen.blocking:
        return _still_there(seen.blocking, plan)
    assert seen.verdict is not None
    return seen.verdict


def _still_there(blocking: Sequence[Holder], plan: Plan) -> Verdict:
    first = blocking[0]
    title, found = text.short(first.title), procfs.stat(first.pid)
    if all(holder.identity != first.identity for holder in plan.processes_to_end):
        return Verdict(
            verdicts.NOT_ENDED,
            f"{first.pid} {title} uses these GPUs now and did not when the plan was made: free again",
        )
    return verdicts.of_survivor(
        first.pid,
        title,
        found.state if found else first.state,
        procfs.read_text(first.pid, "wchan"),
        freezer.frozen(first.pid),
    )
