"""An engine without what is wrong in it, so that the rest is looked at in the same round.

Kept, because without it one wrong key hides an engine's other mistakes until it is corrected.
"""

from __future__ import annotations

import copy
from collections.abc import Collection
from typing import Any

from roles.inventory import schema
from roles.inventory.errors import Path

ROUNDS = 8
"""Each removes at least one level of what is wrong; an engine has fewer than that."""
WHOLE = ("drafter", "install", "kernel")
"""Keys whose parts say something only together."""
LEANS_ON = {
    "version": ("flags", "install"),
    "flags": ("gpus",),
    "tensor_parallel": ("gpus",),
}
"""Key -> others whose rules look at it."""


def pruned(engine: dict[str, Any], wrong: list[Path]) -> dict[str, Any]:
    """A copy in which nothing breaks the schema. Where that cannot be had it is empty, and `wrong`
    gets the engine itself as a place."""
    rest = copy.deepcopy(engine)
    places = list(wrong)
    for _ in range(ROUNDS):
        for place in places:
            _remove(rest, place)
        places = []

        def note(where: Path, *_: object, places: list[Path] = places) -> None:
            places.append(where)

        schema.validate("engine", rest, note)
        if not places:
            return rest
    wrong.append(())
    return {}


def comparable(engine: dict[str, Any], wrong: Collection[Path]) -> dict[str, Any]:
    """The engine without those of its parts that engines of a host are compared by, and that are
    defaults only because what stood there is wrong."""
    gone = {place[0] for place in wrong if place}
    if () in wrong:
        gone |= {"port", "gpus"}
    if ("flags",) in wrong:
        gone.add("gpus")  # whether it uses any is not known
    return {key: value for key, value in engine.items() if key not in {"port", "gpus"} & gone}


def untouched(report: schema.Report, wrong: Collection[Path]) -> schema.Report:
    """Report only what does not follow from a place that was taken out."""

    def only(where: Path, found: str, allowed: str, meant: str | None) -> None:
        if not any(_concerns(place, where) for place in wrong):
            report(where, found, allowed, meant)

    return only


def _concerns(place: Path, where: Path) -> bool:
    first = place[:1] and place[0]
    if not where or not first:
        return True
    if where[0] in LEANS_ON.get(str(first), ()) and len(place) == 1:
        return True
    if first == where[0] and first in WHOLE:
        return True
    shorter = min(len(place), len(where))
    return place[:shorter] == where[:shorter]


def _remove(document: Any, place: Path) -> None:
    """Take a place out: with its list, because places count a list's items."""
    indices = [index for index, part in enumerate(place) if isinstance(part, int)]
    keys = place[: indices[0]] if indices else place
    for depth in range(len(keys), 0, -1):
        holder = _at(document, keys[: depth - 1])
        if isinstance(holder, dict) and keys[depth - 1] in holder:
            del holder[keys[depth - 1]]
            return


def _at(document: Any, where: Path) -> Any:
    for part in where:
        if not isinstance(document, dict) or part not in document:
            return None
        document = document[part]
    return document
