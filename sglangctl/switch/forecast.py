"""What a stop or a removal of an engine would do now: for a plan. Read-only."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from sglangctl.state import ownership
from sglangctl.state.config import EngineConfig, HostConfig
from sglangctl.state.paths import Paths, checked_name
from sglangctl.switch.remove import steps
from sglangctl.systemd.unit_names import engine_unit
from sglangctl.util.errors import Failed


def unconfigured(wanted: Mapping[str, Iterable[str]]) -> dict[str, EngineConfig]:
    """Configurations for engines of which only the name is known: enough to plan their stop.

    Unusable for what is not an engine's name.
    """
    return {
        name: EngineConfig(
            name=checked_name(name),
            unit=engine_unit(name),
            user="",
            port=0,
            listen="",
            model="",
            served_name=name,
        )
        for names in wanted.values()
        for name in names
    }


def look(
    plans: dict[str, Any],
    removals: dict[str, Any],
    wanted: Mapping[str, Iterable[str]],
    host: HostConfig,
    configured: Mapping[str, EngineConfig],
    paths: Paths,
) -> None:
    """Add to `plans` and `removals` what is `wanted`: {"stop": names, "remove": names}."""
    for names in wanted.values():
        for name in names:
            if name in configured and name not in plans:
                others = [other for key, other in configured.items() if key != name]
                plans[name] = stop_plan(configured[name], host, others)
    for name in wanted.get("remove", ()):
        removals[name] = removal(name, paths)


def stop_plan(
    engine: EngineConfig, host: HostConfig, siblings: Sequence[EngineConfig]
) -> dict[str, Any]:
    """The plan of `sglangctl stop`, see there for why it does not look at `replaces`."""
    from sglangctl import free

    alone = replace(engine, replaces=())
    plan = free.plan(alone, host, siblings, policy="declared", stop=True)
    return free.plan_document(plan)


def removal(name: str, paths: Paths) -> dict[str, Any]:
    """`lines`: what `sglangctl remove` would delete, and what stays; `refused`: why nothing would
    be done, None where something would."""
    unit = paths.units / engine_unit(checked_name(name))
    if ownership.foreign_unit(unit):
        return {"lines": [], "refused": f"{unit} was not made by sglang-provision"}
    try:
        lines = [line for step in steps(name, paths) if (line := step.line())]
        return {"lines": list(dict.fromkeys(lines)), "refused": None}
    except Failed as error:
        return {"lines": [], "refused": str(error)}
