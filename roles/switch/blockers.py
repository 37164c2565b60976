"""What is in the way of a switch, found in the probe's document before anything is ended. Pure."""

from __future__ import annotations

from roles.engine.desired import DesiredEngine
from roles.remote.snapshot import JSON
from sglangctl.state.ownership import HEAD


def blockers(facts: JSON, engine: DesiredEngine) -> list[str]:
    """Everything for which a switch must not even be tried, each with what is to be done."""
    found = []
    unit = facts["files"].get(engine.installed_unit.path) or {}
    text = unit.get("text")
    if unit.get("kind") == "link" or (text is not None and not text.startswith(HEAD)):
        found.append(
            f"{engine.installed_unit.path} was not made by sglang-provision: name the engine "
            "otherwise, or move that file away"
        )
    for key, path in engine.weights.items():
        kind = (facts["files"].get(path) or {}).get("kind")
        if kind not in ("directory", "file", "link"):
            found.append(
                f"{key} {path} is not on the host ({kind}): put it there or correct the inventory"
            )
    others = (held(facts, engine), too_few_gpus(facts, engine), port_taken(facts, engine))
    return found + [one for one in others if one is not None]


def held(facts: JSON, engine: DesiredEngine) -> str | None:
    """Who has the GPUs and may not be ended, with what would allow it."""
    plan = (facts.get("plans") or {}).get(engine.name) or {}
    if not plan.get("refused"):
        return None
    return "\n".join(plan.get("lines") or ["the GPUs are held by what may not be ended"])


def too_few_gpus(facts: JSON, engine: DesiredEngine) -> str | None:
    """The host has fewer GPUs than ranks are asked for (where it can tell its GPUs)."""
    gpus = facts.get("gpus")
    if gpus is None or engine.spec.gpus != "all" or engine.spec.flags.get("device") == "cpu":
        return None
    if engine.spec.tensor_parallel <= len(gpus):
        return None
    return (
        f"tensor_parallel is {engine.spec.tensor_parallel} and the host has {len(gpus)} GPUs: "
        "lower it, or take another host"
    )


def port_taken(facts: JSON, engine: DesiredEngine) -> str | None:
    """Somebody listens on the engine's port who is there after the switch too. SGLang itself
    notices that only after the whole load."""
    plan = (facts.get("plans") or {}).get(engine.name) or {}
    leaving = {pid for step in plan.get("units_to_stop") or [] for pid in step["pids"]}
    leaving |= {pid for step in plan.get("containers_to_stop") or [] for pid in step["pids"]}
    leaving |= {holder["pid"] for holder in plan.get("processes_to_end") or []}
    units = {engine.spec.unit, *engine.spec.replaces}
    for listener in facts.get("listening") or []:
        if listener["port"] != engine.spec.port:
            continue
        for owner in listener.get("owners") or []:
            if owner["pid"] not in leaving and owner.get("unit") not in units:
                unit = owner.get("unit") or "no unit"
                return (
                    f"port {engine.spec.port} is held by {owner['name']} (pid {owner['pid']}, "
                    f"{unit}): choose another `port`, or name what it belongs to in `replaces`"
                )
    return None
