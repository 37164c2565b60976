"""From the situation to the plan. Pure: no I/O.

If a process that may not be ended uses the GPUs, the plan is refused and nothing is changed.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from sglangctl.free import model, notes, unowned, verdicts
from sglangctl.free.model import ContainerStep, Plan, Refusal, Situation, UnitStep
from sglangctl.holders import classes
from sglangctl.holders.classes import ENGINE, FOREIGN, OURS, PROTECTED, REPLACED, SIBLING
from sglangctl.holders.survey import Holder
from sglangctl.state.config import EngineConfig
from sglangctl.systemd.unit import Unit


def make(situation: Situation, policy: str = "declared", stop: bool = False) -> Plan:
    """The plan for `situation.engine`. `stop`: its own unit is to be stopped as well.

    KeyError for a policy that does not exist.
    """
    allowed = classes.POLICIES[policy]
    targets = targets_of(situation)
    refused = [*_unseen_units(situation), *_refused_units(situation)]
    steps = [*_replaced_units(situation), *_own_unit(situation, stop)]
    blocking = [holder for holder in situation.holders if in_the_way(holder, targets)]
    kept = [holder for holder in blocking if is_kept(holder, situation, targets)]
    refused += _too_much_kept(situation, kept, targets)
    refused += _nobodys_memory(situation, targets)
    steps += _undeclared_units(situation, blocking, allowed, {step.unit for step in steps})
    stopped = {step.unit for step in steps}
    boxes = _containers(situation, blocking)
    boxed = {box.id for box in boxes}
    # Where the engine itself is on these GPUs too, freeing them has to stop that first.
    ours = any(holder.class_ == OURS for holder in blocking)
    processes = []
    for holder in situation.holders:
        covered = holder.system_unit in stopped or holder.container in boxed
        blocks = in_the_way(holder, targets)
        if covered or (blocks and is_kept(holder, situation, targets)):
            continue
        if blocks and holder.class_ not in allowed:
            refused.append(_refusal(holder, situation, ours))
        elif holder.class_ == REPLACED or (blocks and holder.class_ in allowed):
            # A `replaced` orphan is ended also where it uses no GPU: it may hold the port.
            processes.append(holder)
    processes += _port_owners(situation, processes, allowed)
    refused += _protected_members(situation, stopped, boxed)
    plan = Plan(
        engine=situation.engine.name,
        policy=policy,
        stop=stop,
        targets=None if targets is None else tuple(sorted(targets)),
        units_to_stop=tuple(steps),
        containers_to_stop=tuple(boxes),
        processes_to_end=tuple(processes),
        refused=tuple(refused),
        kept=tuple(kept),
        port=situation.engine.port,
        limits=situation.engine.limits,
        situation=situation,
    )
    return replace(plan, notes=notes.of(plan, situation))


def targets_of(situation: Situation) -> set[int] | None:
    """The GPUs that the engine will use; None: all there are."""
    return gpus_of(situation.engine)


def gpus_of(engine: EngineConfig) -> set[int] | None:
    return None if isinstance(engine.gpus, str) else set(engine.gpus)


def in_the_way(holder: Holder, targets: set[int] | None) -> bool:
    """Whether it uses a GPU that the engine will use."""
    return bool(holder.uses) and (targets is None or not targets.isdisjoint(holder.uses))


def overlap(first: set[int] | None, second: set[int] | None) -> bool:
    """Whether two engines' GPUs overlap (None: all)."""
    return first is None or second is None or not first.isdisjoint(second)


def _port_owners(
    situation: Situation, processes: Sequence[Holder], allowed: frozenset[str]
) -> list[Holder]:
    """Parts of an engine that is ended anyway which use no GPU and hold the port (vLLM's
    API servers survive their parent): same session, same user, recognised as an engine."""
    families = {(holder.session, holder.uid) for holder in processes}
    ended = {holder.identity for holder in processes}
    return [
        holder
        for holder in situation.holders
        if holder.ports
        and holder.identity not in ended
        and holder.class_ == ENGINE
        and ENGINE in allowed
        and (holder.session, holder.uid) in families
    ]


def is_kept(holder: Holder, situation: Situation, targets: set[int] | None) -> bool:
    """Never ended and not in the way: protected, or a sibling on other GPUs of the inventory."""
    if holder.class_ == PROTECTED:
        return True
    if holder.class_ != SIBLING:
        return False
    sibling = next((one for one in situation.siblings if one.unit == holder.system_unit), None)
    on_ours = any(targets is None or gpu in targets for gpu in holder.memory_mib)
    return sibling is not None and not overlap(targets, gpus_of(sibling)) and not on_ours


def _too_much_kept(
    situation: Situation, kept: Sequence[Holder], targets: set[int] | None
) -> Iterator[Refusal]:
    """What is never ended keeps its memory: where that alone makes a GPU not free, stopping
    anything would be for nothing. Memory that the driver does not tell counts as none."""
    limit = situation.engine.limits.memory_free_mib
    held: dict[int, list[tuple[int, Holder]]] = {}
    for holder in kept:
        for gpu, mib in holder.memory_mib.items():
            if mib is not None and (targets is None or gpu in targets):
                held.setdefault(gpu, []).append((mib, holder))
    for gpu, mine in sorted(held.items()):
        total = sum(mib for mib, _ in mine)
        if total < limit:
            continue
        _, largest = max(mine, key=lambda item: item[0])
        yield Refusal(
            largest.class_,
            largest.title,
            f"{largest.reason}; processes that are never ended use {total} MiB of "
            f"GPU {gpu} (memory_free_mib: {limit:g})",
            "no policy ends it: stop it yourself, or leave this GPU out of `gpus` of "
            f"{situation.engine.name}",
            pid=largest.pid,
            unit=largest.unit,
            gpus=(gpu,),
        )


def _nobodys_memory(situation: Situation, targets: set[int] | None) -> Iterator[Refusal]:
    """Nothing that could be stopped gives it back, so nothing is stopped for it."""
    engine = situation.engine
    limit = engine.limits.memory_free_mib
    found = unowned.memory(situation.reading, situation.holders, targets, limit)
    for gpu, mib in found.items():
        if verdicts.is_wedged(gpu):
            reason, allow = verdicts.wedged(gpu), "then call this again"
        else:
            reason = (
                f"{mib:,} MiB on GPU {gpu.index} belong to no process that can be seen from here: "
                "another container or PID namespace, or a wedged GPU"
            )
            allow = (
                "on the host itself, nvidia-smi shows whose it is"
                if not situation.on_the_host
                else "end what has it (docker ps, ps); if nothing has, reset the GPU (nvidia-smi "
                f"--gpu-reset -i {gpu.index}) or reboot"
            )
            allow += (
                ". If the GPU is shared on purpose: `readiness.limits.memory_free_mib` of "
                f"{engine.name} above {mib}"
            )
        yield Refusal(model.NOBODY, "nobody", reason, allow, gpus=(gpu.index,))


def _unseen_units(situation: Situation) -> Iterator[Refusal]:
    """Without an answer of systemd nothing would be stopped, and the new engine started beside what
    runs: on a host that swaps, `systemctl show` runs out of time."""
    if situation.unseen:
        yield Refusal(
            model.UNSEEN,
            ", ".join(situation.unseen),
            "systemctl show does not answer, so their processes are unknown",
            "when `systemctl status` answers again (a host that swaps: free -m; top), run it again",
        )


def _refused_units(situation: Situation) -> Iterator[Refusal]:
    """`replaces` may not name an engine of ours."""
    own = {situation.engine.unit: situation.engine.name}
    own.update({sibling.unit: sibling.name for sibling in situation.siblings})
    for name in situation.engine.replaces:
        unit = (situation.units or {}).get(name)
        engine = own.get(unit.name if unit else name)
        if engine is not None:
            yield Refusal(
                SIBLING,
                name,
                f"`replaces` names the unit of {engine}, an engine of this host",
                f"no policy: take {name} out of `replaces` of {situation.engine.name}"
                + (f"; {_is_gone(engine, situation)}" if _gone(engine, situation) else ""),
                unit=name,
            )


def _replaced_units(situation: Situation) -> Iterator[UnitStep]:
    forbidden = {refusal.unit for refusal in _refused_units(situation)}
    seen: set[str] = set()
    for name in situation.engine.replaces:
        unit = (situation.units or {}).get(name)
        if unit is None or name in forbidden or unit.name in seen:
            continue
        seen.add(unit.name)
        members = situation.members.get(unit.name, ())
        if unit.exists and (unit.running or unit.enabled or members):
            yield _unit_step(
                unit, REPLACED, "the inventory replaces it", members, disable=unit.enabled
            )


def _own_unit(situation: Situation, stop: bool) -> Iterator[UnitStep]:
    unit = (situation.units or {}).get(situation.engine.unit)
    if unit is None or not stop:
        return
    members = situation.members.get(unit.name, ())
    if unit.running or members:
        # sglangctl wait keeps our units `activating` until they serve.
        starting = unit["ActiveState"] == "activating"
        reason = f"it is {situation.engine.name} itself"
        reason += ", which does not serve yet" if starting else ""
        yield replace(_unit_step(unit, OURS, reason, members, False), starting=starting)


def _undeclared_units(
    situation: Situation, blocking: Sequence[Holder], allowed: frozenset[str], known: set[str]
) -> list[UnitStep]:
    """Services whose main process may be ended: stopped as a whole, or systemd restarts them.

    Only where the main process itself is such a holder: stopping cron or a login's scope because
    an engine was started there would end other people's work.
    """
    steps = []
    for name, unit in sorted((situation.units or {}).items()):
        main = next(
            (one for one in blocking if one.pid == unit.number("MainPID")),
            None,
        )
        if (
            main is None
            or unit.name in known
            or not unit.name.endswith(".service")
            or main.system_unit != unit.name
            or main.class_ not in allowed
            or main.class_ not in (ENGINE, FOREIGN)
        ):
            continue
        members = situation.members.get(unit.name, ())
        reason = f"its main process is {main.class_}: {main.reason}"
        steps.append(_unit_step(unit, main.class_, reason, members, disable=False))
        known = known | {name, unit.name}
    return steps


def _unit_step(
    unit: Unit, class_: str, reason: str, members: Sequence[int], disable: bool
) -> UnitStep:
    return UnitStep(
        unit=unit.name,
        class_=class_,
        reason=reason,
        active_state=unit["ActiveState"],
        enabled=unit["UnitFileState"],
        disable=disable,
        pids=tuple(members),
        triggered_by=unit.triggers,
        restart=unit["Restart"],
        fragment=unit["FragmentPath"],
    )


def _containers(situation: Situation, blocking: Sequence[Holder]) -> list[ContainerStep]:
    steps = []
    for key, box in situation.containers.items():
        inside = [holder.pid for holder in blocking if holder.container == key]
        if inside and box.name in situation.host.containers:
            steps.append(
                ContainerStep(key, box.name, box.command, box.restart, tuple(sorted(inside)))
            )
    return steps


def _refusal(holder: Holder, situation: Situation, ours: bool) -> Refusal:
    return Refusal(
        class_=holder.class_,
        who=holder.title,
        reason=holder.reason,
        allow=_allow(holder, situation, ours),
        pid=holder.pid,
        unit=holder.system_unit,
        gpus=holder.uses,
    )


def _allow(holder: Holder, situation: Situation, ours: bool) -> str:
    """The exact command or inventory line that would allow it to be ended: a deploy shows this too,
    and has no such options."""
    name = situation.engine.name
    if holder.class_ == OURS:
        return f"on the host: sglangctl free {name} --stop (it is {name} itself)"
    if holder.class_ == SIBLING:
        other = next(
            (one.name for one in situation.siblings if one.unit == holder.system_unit), "it"
        )
        if _gone(other, situation):
            return f"no policy ends it: {_is_gone(other, situation)}"
        return (
            f"no policy ends a sibling: give {name} and {other} different `gpus` in the inventory, "
            f"or stop {other} first: sglangctl stop {other}"
        )
    policy = "engines" if holder.class_ == ENGINE else "all"
    stop = " --stop" if ours else ""
    command = f"on the host: sglangctl free {name}{stop} --policy {policy}"
    if holder.container:
        box = holder.container_name or f"(the name of container {holder.container[:12]})"
        return f"`containers: [{box}]` in the inventory, or {command}"
    if holder.system_unit and model.is_a_service(holder.system_unit):
        return f"`replaces: [{holder.system_unit}]` of {name} in the inventory, or {command}"
    return command


def _gone(engine: str, situation: Situation) -> bool:
    """Whether an engine of this host is no longer in its inventory."""
    known = situation.host.engines
    return bool(known) and engine not in known


def _is_gone(engine: str, situation: Situation) -> str:
    return (
        f"{engine} is not in the inventory any more. If {situation.engine.name} is its new name: "
        f"`was: {engine}`; else deploy with --data prune=yes, which removes it"
    )


def _protected_members(
    situation: Situation, stopped: set[str], boxed: set[str]
) -> Iterator[Refusal]:
    """A protected process inside of what would be stopped."""
    for holder in situation.holders:
        inside = holder.system_unit if holder.system_unit in stopped else None
        if holder.container in boxed:
            inside = holder.container_name
        if inside and holder.class_ == PROTECTED:
            yield Refusal(
                PROTECTED,
                holder.title,
                f"{holder.reason}, and inside {inside}, which would be stopped",
                f"no policy ends it: take {inside} out of the inventory's `replaces` or "
                "`containers`, or the process out of `protected`",
                pid=holder.pid,
                unit=holder.system_unit,
                gpus=holder.uses,
            )
