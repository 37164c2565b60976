"""What this host says about how a switch changes over. Read-only; in a file of its own for the probe."""

from __future__ import annotations

import os
from collections.abc import Sequence

from sglangctl.free.model import Plan
from sglangctl.proc import memory
from sglangctl.state import ownership, slots
from sglangctl.state.config import EngineConfig
from sglangctl.state.paths import Paths
from sglangctl.switch import cutover
from sglangctl.systemd.unit_names import engine_unit
from sglangctl.systemd.unit_names import slots as slots_of


def chosen(
    engine: EngineConfig, plan: Plan, venv: str | None, shipped: Sequence[str], paths: Paths
) -> cutover.Cutover:
    """How a switch with this plan changes over. Read-only. `venv`: of the release, None where it is not
    known yet; `shipped`: the files of the release that its flags name."""
    reading = plan.situation.reading if plan.situation else None
    gpus = () if engine.preflight.device == "cpu" else reading.gpus if reading else None
    free_mib: dict[int, int] | None = None if gpus is None else {}
    for one in gpus or ():
        if free_mib is None or not plan.uses(one.index):
            continue
        if one.memory_total_mib is None or one.memory_used_mib is None:
            free_mib = None
        else:
            free_mib[one.index] = one.memory_total_mib - one.memory_used_mib
    own = engine_unit(engine.name)
    facts = cutover.Facts(
        single=own if any(step.unit == own for step in plan.units_to_stop) else "",
        serves=bool(plan.units_to_stop or plan.containers_to_stop or plan.processes_to_end),
        gate=cutover.has_gate(paths.root / venv.lstrip("/")) if venv else None,
        ranks=engine.tensor_parallel,
        free_mib=free_mib,
        available_mib=memory.room_mib(),
        hindered=hindrances(engine, shipped, paths),
    )
    return cutover.decide(engine.cutover, facts)


def hindrances(engine: EngineConfig, shipped: Sequence[str], paths: Paths) -> list[str]:
    """What speaks against a gate on this host, one sentence each. `shipped`: the files of the release
    that its flags name."""
    found: list[str] = []
    name = engine.name
    units = (engine_unit(name), *slots_of(name))
    edited = [path for one in units for path in sorted(paths.units.glob(f"{one}.d/*.conf"))]
    if edited:
        found.append(f"a drop-in changes its unit: {', '.join(map(str, edited))}")
    link = slots.alias(name, paths)
    others = [one for one in slots_of(name) if ownership.written_by_others(paths.units / one)]
    if others:
        found.append(f"{paths.units / others[0]} is somebody else's")
    if os.path.lexists(link) and not slots.is_alias(name, paths):
        found.append(f"{link} is somebody else's")
    folder = next(one for one in link.parents if one.is_dir())
    if not os.access(folder, os.W_OK):  # of a /usr that is mounted read-only
        found.append(f"{folder} cannot be written, and the engine's name must become a link there")
    if shipped:
        found.append(
            f"its flags name files of the release, which must be live: {', '.join(shipped)}"
        )
    ports = engine.preflight.derived_ports
    if ports:
        listed = ", ".join(map(str, ports))
        found.append(
            f"it takes ports of its own beside its port, which the old one holds: {listed}"
        )
    return found
