"""As whom each engine runs: named by the inventory, else a user of its own.

An engine that runs as `sglang` keeps it: that was the default, and another user could not write to
its cache.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from roles.inventory.model import EngineSpec
from roles.remote.snapshot import JSON, engine_facts

SHARED = "sglang"
"""The default of before, for all engines of a host."""


def settled(engines: Iterable[EngineSpec], facts: JSON) -> tuple[EngineSpec, ...]:
    """The engines with the users that they get, from the probe's document."""
    return tuple(
        engine
        if engine.user_is_named or engine_facts(facts, engine.name).get("user") != SHARED
        else replace(
            engine,
            user=SHARED,
            fallbacks={key: replace(one, user=SHARED) for key, one in engine.fallbacks.items()},
        )
        for engine in engines
    )
