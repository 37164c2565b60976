"""Engines that a host has and the inventory does not: left, taken over under a new name, or removed."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from pyinfra.context import host, state

from roles.engine.desired import DesiredEngine
from roles.inventory.model import EngineSpec
from roles.remote.operation import Commands, operation, read, show
from roles.remote.snapshot import JSON, engine_facts, releases
from roles.report.choice import LEFT, REMOVE, STAYS, Choice
from roles.switch.decision import decision_of
from roles.switch.stop import removal_of
from sglangctl.util.values import texts

Stays = Callable[[JSON], str | None]
"""From the probe's document to why an engine stays; None: it is removed."""


@operation()
def gone(engine: str, stays: Stays, request: JSON, sudo: bool = False) -> Commands:
    """
    Remove an engine that has left the inventory, where the inventory wants that.

    + engine: its name
    + stays: from the probe's document to why it is left
    + request: what the probe is asked for
    + sudo: whether commands need it on this host
    """
    why = stays(read(request))
    if why is None:
        yield from removal_of(engine, request, sudo)
        return
    show([why] if why else [])
    host.noop(f"{engine} is left")


def stays_of(name: str, engines: Sequence[DesiredEngine], prune: str, target: str) -> Stays:
    """Why the engine `name`, which the inventory does not have, is left on a host; empty: nobody
    wants to read it."""
    heir = next((one for one in engines if one.spec.was == name), None)

    def of(facts: JSON) -> str | None:
        if heir is not None:
            decision = decision_of(heir)(facts)
            waits = decision.needed if state.is_executing else decision.held
            return f"{name} stays until {heir.name} has taken its place" if waits else None
        if prune == "yes":
            return None
        if prune == "no":
            return ""
        return f"{name} {left(name, facts)}: {command_of(name, target)}"

    return of


def left(name: str, facts: JSON) -> str:
    """What to know of an engine that is left alone."""
    about = engine_facts(facts, name)
    unit = (about.get("unit") or {}).get("ActiveState") or "unknown"
    return f"is {unit} and not in the inventory; the deploy leaves it alone. To remove it"


def alike(name: str, engine: EngineSpec, facts: JSON) -> bool:
    """Whether an engine is new and has the port and the model of `name`: that one, renamed."""
    about, live = engine_facts(facts, name), releases(facts, engine.name).get("current")
    same = about.get("port") == engine.port and about.get("model") == engine.model.path
    return live is None and same


def command_of(name: str, target: str) -> str:
    return f"pyinfra inventory.py deploys/remove.py --data engine={name} --limit {target}"


def choices(
    names: Sequence[str],
    engines: Sequence[DesiredEngine],
    prune: str,
    facts: JSON,
    target: str,
) -> list[Choice]:
    """What a plan says of each of them."""
    found = []
    for name in names:
        heir = next((one.name for one in engines if one.spec.was == name), None)
        if prune == "no" and heir is None:
            found.append(Choice(name, STAYS))
            continue
        why = stays_of(name, engines, prune, target)(facts)
        if why is None:
            reason = f"{heir} takes its place" if heir else "not in the inventory (`prune: yes`)"
            refused = texts([engine_facts(facts, name, "removals").get("refused")])
            found.append(Choice(name, REMOVE, (reason,), fails=tuple(refused)))
        elif heir is not None:
            found.append(Choice(name, LEFT, (why,)))
        else:
            reason = f"{left(name, facts)}:"
            found.append(Choice(name, LEFT, (reason,), command=command_of(name, target)))
    return found
