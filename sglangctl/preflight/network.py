"""Ports: who has the engine's now, and whether that one is gone after the switch."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from sglangctl.diagnosis.finding import FAIL, WARN, Finding
from sglangctl.preflight.catalog import finding
from sglangctl.preflight.fit import leaving
from sglangctl.proc import addresses
from sglangctl.state.config import EngineConfig
from sglangctl.util.values import mapping, mappings

LOCAL = ("localhost", "::1")
EVERYWHERE = ("0.0.0.0", "::")


def look(engine: EngineConfig, facts: Mapping[str, Any]) -> Iterator[Finding]:
    """Somebody listens on one of the engine's ports who is there after the switch too (SGLang
    itself notices that only after the whole load); everybody can send requests."""
    if not engine.preflight.authenticated and not _is_local(engine.listen):
        yield from _exposed(engine)
        yield finding(
            "listener-open",
            WARN,
            f"everybody who reaches {engine.listen}:{engine.port} can use the engine: it has no "
            "api_key",
            "set `api_key: {file: ...}`, or `listen: 127.0.0.1`",
        )
    for number in engine.preflight.derived_ports:
        derived = _staying(engine, facts, number)
        if derived is not None:
            yield finding(
                "port-derived",
                FAIL,
                f"port {number}, which the engine takes beside {engine.port}, is held by {derived}",
                "choose another `port`",
            )
    staying = _staying(engine, facts, engine.port)
    if staying is not None:
        # `replaces` takes no engine of ours.
        names = mapping(facts.get("engines"))
        units = {mapping(one).get("unit_name"): name for name, one in names.items()}
        ours = next((name for unit, name in units.items() if unit and unit in staying), None)
        yield finding(
            "port-taken",
            FAIL,
            f"port {engine.port} is held by {staying}",
            "choose another `port`, or name what it belongs to in `replaces`"
            if ours is None
            else f"choose another `port`; if {ours} is not in the inventory any more: `was: {ours}` where "
            f"{engine.name} is its new name, else deploy with --data prune=yes, which removes it",
        )


def _exposed(engine: EngineConfig) -> Iterator[Finding]:
    everywhere = engine.listen in EVERYWHERE
    known = addresses.public() if everywhere else [engine.listen]
    reached = [one for one in known if addresses.is_public(one)]
    if reached:
        yield finding(
            "listener-exposed",
            FAIL,
            f"the engine listens on {', '.join(reached)}, which the internet may reach, and has no "
            "api_key",
            "set `api_key: {file: ...}`, or listen on a private address; where a firewall is in "
            "front: `preflight: {ignore: [listener-exposed]}`",
        )


def _is_local(listen: str) -> bool:
    return listen in LOCAL or listen.startswith("127.")


def _staying(engine: EngineConfig, facts: Mapping[str, Any], number: int) -> str | None:
    """Who listens on a port and does not end with the switch; None for nobody."""
    plan = mapping(mapping(facts.get("plans")).get(engine.name))
    ending = leaving(plan)
    units = {engine.unit, *engine.replaces}
    for listener in mappings(facts.get("listening")):
        if listener["port"] != number:
            continue
        for owner in mappings(listener.get("owners")):
            if owner["pid"] not in ending and owner.get("unit") not in units:
                unit = owner.get("unit") or "no unit"
                return f"{owner['name']} (pid {owner['pid']}, {unit})"
    return None
