"""What a switch ends, counted from the plan of the host. Pure."""

from __future__ import annotations

from roles.engine.desired import DesiredEngine
from roles.inventory.model import EngineSpec
from roles.remote.snapshot import JSON, engine_facts
from sglangctl.free.text import processes


def ending(engine: DesiredEngine, facts: JSON) -> tuple[list[str], int]:
    """(what is somebody else's, the number of the engine's own processes)."""
    plan, units = engine_facts(facts, engine.name, "plans"), own_units(engine.spec, facts)
    others, own = [], 0
    steps = [*(plan.get("units_to_stop") or []), *(plan.get("containers_to_stop") or [])]
    for one in steps:
        name = str(one.get("unit") or one.get("name") or "a container")
        count = len(one.get("pids") or [])
        if name in units:
            own += count
        else:
            others.append(f"{name} ({processes(count)})")
    ended = plan.get("processes_to_end") or []
    not_own = sum(1 for one in ended if one.get("class") != "ours")
    own += len(ended) - not_own
    if not_own:
        others.append(f"{processes(not_own)} of others")
    return others, own


def own_units(engine: EngineSpec, facts: JSON) -> set[str]:
    """The units that an engine is on a host: also under its name before."""
    names = [name for name in (engine.name, engine.was) if name]
    found = {str(engine_facts(facts, name).get("unit_name") or "") for name in names}
    return {engine.unit, *found} - {""}
