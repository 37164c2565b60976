"""Which NCCL profile each engine with `nccl.profile: auto` gets, from the probe's document."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from roles.inventory import auto_profile
from roles.inventory.auto_profile import Chosen
from roles.inventory.model import EngineSpec
from roles.remote.snapshot import JSON


def request(engines: Iterable[EngineSpec]) -> dict[str, Any]:
    """What the probe is asked for: nothing where no engine has `auto`."""
    names = {one.name: one.was for one in engines if uses_auto(one)}
    asked = sorted({name for pair in names.items() for name in pair if name})
    return {"collectives": asked} if asked else {}


def chosen(engine: EngineSpec, facts: JSON) -> Chosen:
    """An engine with a new name has the results of the old one."""
    known = facts.get("collectives") or {}
    return auto_profile.choose(engine, known.get(engine.name) or known.get(engine.was or ""))


def settled(engines: Iterable[EngineSpec], facts: JSON) -> tuple[EngineSpec, ...]:
    """The engines with the profiles that they get."""
    return tuple(
        auto_profile.with_profile(one, chosen(one, facts).profile) if uses_auto(one) else one
        for one in engines
    )


def uses_auto(engine: EngineSpec) -> bool:
    """Also one of which only a fallback does."""
    return engine.nccl.auto or any(one.nccl.auto for one in engine.fallbacks.values())


def lines(engines: Iterable[EngineSpec], facts: JSON) -> list[str]:
    """Why, for plan and report."""
    return [
        f"{one.name}: nccl.profile auto: {found.profile}: {found.why}"
        for one in engines
        if uses_auto(one)
        for found in [chosen(one, facts)]
    ]
