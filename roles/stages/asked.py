"""What a run asks for beside the inventory: `--data restart=never`, `--data prune=yes`. Pure."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from roles.inventory import schema
from roles.inventory.model import HostSpec


def for_this_run(spec: HostSpec, given: Callable[[str], Any]) -> HostSpec:
    """The host's spec as this run wants it. ValueError for a value that the inventory could not
    have either.

    + given: key -> its value in pyinfra's data of the host, where --data goes before all else
    """
    restart = choice(given, "engine", "restart")
    prune = choice(given, "host", "prune")
    if restart is None and prune is None:
        return spec
    engines = spec.engines
    if restart is not None:
        engines = tuple(replace(one, restart=restart) for one in engines)
    return replace(spec, engines=engines, prune=spec.prune if prune is None else prune)


def choice(given: Callable[[str], Any], definition: str, key: str) -> Any:
    """The value of --data KEY, one of those that the schema allows; None where there is none."""
    value = given(key)
    allowed = schema.definition(definition)["properties"][key]["enum"]
    if value is not None and value not in allowed:
        raise ValueError(f"--data {key}={value}: needed is {' or '.join(allowed)}")
    return value
