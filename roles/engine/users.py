"""As whom each engine runs: named by the inventory, else a user of its own.

An engine that runs as `sglang` keeps it: that was the default, and another user could not write to
its cache.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

from pyinfra.api import StringCommand

from roles.inventory.model import EngineSpec
from roles.remote import snapshot
from roles.remote.snapshot import BEGINS

SHARED = "sglang"
"""The default of before, for all engines of a host."""


# One that cannot be read is none: the probe says so.
COMMAND = StringCommand(
    f"printf '\\n{BEGINS}\\n'; cat -- /etc/sglangctl/engines/*.json 2>/dev/null || true"
)


def users_of(lines: list[str]) -> dict[str, Any]:
    """{"users": {engine: user}} of what COMMAND prints."""
    begins = max((number for number, line in enumerate(lines) if line == BEGINS), default=-1)
    return {"users": users_in("\n".join(lines[begins + 1 :]))}


def users_in(text: str) -> dict[str, str]:
    """Engine -> user, from documents one after the other; what is none ends it."""
    found: dict[str, str] = {}
    decoder, at = json.JSONDecoder(), 0
    while at < len(text):
        try:
            document, at = decoder.raw_decode(text, at)
            found[str(document["name"])] = str(document["user"])
        except (ValueError, KeyError, TypeError, RecursionError):
            break
        while text[at : at + 1].isspace():
            at += 1
    return found


def settled(engines: Iterable[EngineSpec], now: Mapping[str, str]) -> tuple[EngineSpec, ...]:
    """The engines with the users that they get; `now`: those that they have."""
    return tuple(
        engine
        if engine.user_is_named or now.get(engine.name) != SHARED
        else replace(engine, user=SHARED)
        for engine in engines
    )


def ask(engines: Iterable[EngineSpec]) -> Mapping[str, str] | None:
    """The users that they have on the current host; None when it could not be asked (it has failed
    then). Not asked where the inventory names all."""
    if all(engine.user_is_named for engine in engines):
        return {}
    answer = snapshot.ask(COMMAND, users_of)
    return None if answer is None else answer["users"]
