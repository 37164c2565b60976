"""Ports: who has the engine's now, and whether that one is gone after the switch."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from sglangctl.diagnosis.finding import FAIL, Finding
from sglangctl.preflight.catalog import finding
from sglangctl.state.config import EngineConfig
from sglangctl.util.values import mapping, mappings


def port(engine: EngineConfig, facts: Mapping[str, Any]) -> Iterator[Finding]:
    """Somebody listens on the engine's port who is there after the switch too. SGLang itself
    notices that only after the whole load."""
    staying = _staying(engine, facts, engine.port)
    if staying is not None:
        yield finding(
            "port-taken",
            FAIL,
            f"port {engine.port} is held by {staying}",
            "choose another `port`, or name what it belongs to in `replaces`",
        )


def _staying(engine: EngineConfig, facts: Mapping[str, Any], number: int) -> str | None:
    """Who listens on a port and does not end with the switch; None for nobody."""
    plan = mapping(mapping(facts.get("plans")).get(engine.name))
    ending = [*mappings(plan.get("units_to_stop")), *mappings(plan.get("containers_to_stop"))]
    leaving = {pid for step in ending for pid in step["pids"]}
    leaving |= {holder["pid"] for holder in mappings(plan.get("processes_to_end"))}
    units = {engine.unit, *engine.replaces}
    for listener in mappings(facts.get("listening")):
        if listener["port"] != number:
            continue
        for owner in mappings(listener.get("owners")):
            if owner["pid"] not in leaving and owner.get("unit") not in units:
                unit = owner.get("unit") or "no unit"
                return f"{owner['name']} (pid {owner['pid']}, {unit})"
    return None
