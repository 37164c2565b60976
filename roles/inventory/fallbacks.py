"""Fallbacks: an engine's overrides, each merged over it and looked at like an engine of its own. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from roles.inventory import checks, schema
from roles.inventory.errors import Path, dotted
from roles.inventory.merge import deep_merge, has_path
from roles.inventory.schema import Report

KEY = "fallbacks"


def merged(engine: dict[str, Any]) -> Iterator[tuple[str, dict[str, Any], dict[str, Any]]]:
    """(name, override, the engine with it), in the order of the file; `engine` has its defaults."""
    own = {key: value for key, value in engine.items() if key != KEY}
    for name, override in engine.get(KEY, {}).items():
        if override is not None:
            whole = deep_merge(own, override)
            yield name, override, schema.filled(schema.definition("engine"), {**whole, KEY: {}})


def place(name: str, override: dict[str, Any], inner: Path) -> Path:
    """Where a mistake in an engine with an override was written: there, or in the engine itself."""
    return (KEY, name, *inner) if written_in(override, inner) else inner


def written_in(override: dict[str, Any], inner: Path) -> bool:
    """Whether a place is the override's; a drafter's parts say something only together."""
    return has_path(override, inner) or (inner[:1] == ("drafter",) and "drafter" in override)


def check(name: str, engine: dict[str, Any], report: Report) -> None:
    """Report what is wrong with an engine's fallbacks, and not with the engine itself."""
    wholes = list(merged(engine))
    own = set(_mistakes(name, {**engine, KEY: {}})) if wholes else set()
    for fallback, override, whole in wholes:
        where = (KEY, fallback)
        if whole == {**engine, KEY: {}}:
            report(where, "what the engine has anyway", "overrides that change the engine", None)
        for inner, found, allowed, meant in _mistakes(name, whole):
            if (inner, found, allowed, meant) in own:
                continue
            if written_in(override, inner):
                report((*where, *inner), found, allowed, meant)
            else:
                report(where, f"an engine with {dotted(inner)} {found}", allowed, meant)


def _mistakes(name: str, engine: dict[str, Any]) -> list[tuple[Path, str, str, str | None]]:
    found: list[tuple[Path, str, str, str | None]] = []

    def note(where: Path, text: str, allowed: str, meant: str | None) -> None:
        found.append((where, text, allowed, meant))

    schema.validate("engine", engine, note)
    if not found:
        checks.check_engine(name, engine, note, lambda *_: None)
    return found
