"""Inventories as text, for the tests of roles/inventory."""

from __future__ import annotations

import textwrap
from pathlib import Path

from roles.inventory.document import parse
from roles.inventory.errors import Need
from roles.inventory.load import build
from roles.inventory.model import EngineSpec, HostEntry, Inventory

NOWHERE = Path("/nonexistent")


def load(text: str, folder: Path = NOWHERE, **environ: str) -> Inventory:
    """The inventory of a YAML text that is named hosts.yml."""
    return build(parse(textwrap.dedent(text), "hosts.yml"), folder, environ)


def only(inventory: Inventory) -> HostEntry:
    (entry,) = inventory.hosts
    return entry


def engine_text(body: str, model: str = "{path: /m}") -> str:
    """A document with the engine `e` on the host `h`, and `body` as further keys of it."""
    head = f"hosts:\n  h:\n    engines:\n      e:\n        model: {model}\n"
    return head + textwrap.indent(textwrap.dedent(body), " " * 8)


def engine(body: str = "", folder: Path = NOWHERE, **environ: str) -> EngineSpec:
    """The spec of an engine with these keys besides its model."""
    entry = only(load(engine_text(body), folder, **environ))
    assert entry.errors == ()
    assert entry.spec is not None
    (spec,) = entry.spec.engines
    return spec


def engine_errors(
    body: str, model: str = "{path: /m}", folder: Path = NOWHERE, **environ: str
) -> list[str]:
    """What is wrong with such an engine: lines without `hosts.yml:LINE: hosts.h.engines.e.`."""
    entry = only(load(engine_text(body, model), folder, **environ))
    assert (entry.spec is None) == any(one.need < Need.FILES for one in entry.mistakes)
    return [line.split(": ", 1)[1].removeprefix("hosts.h.engines.e.") for line in entry.errors]
