"""The paths that the proof walks before `ready`: which it walks now, and what came of them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from sglangctl.startup import render
from sglangctl.util.values import mapping, mappings, number, printable, text, texts, whole

_NAME, _MOST = 100, 100


class Warm:
    """What `warm` and `generate` events tell of the paths; a journal without them asks for none."""

    def __init__(self) -> None:
        self.path = ""
        """What the proof walks now, in words; empty when it does not."""
        self.facts: dict[str, Any] = {}
        """What the last proof found on them, as fields of diagnosis.readiness.Facts."""

    def walks(self, event: dict[str, Any]) -> None:
        """A path begins."""
        name, number_of, total = text(event.get("path")), event.get("number"), event.get("of")
        if not name:
            return
        self.path = printable(name, _NAME)
        count, of = whole(number_of), whole(total)
        if count and of:
            self.path += f" ({count} of {of})"

    def walked(self, event: dict[str, Any]) -> None:
        """The proof is over."""
        self.path = ""
        self.facts = findings(event)


def findings(event: Mapping[str, Any]) -> dict[str, Any]:
    """Fields of diagnosis.readiness.Facts by a generate event: what came of the users' paths, and
    of the acceptance's load."""
    return {**_paths(mapping(event.get("warm"))), **_load(mapping(event.get("acceptance")))}


def _load(fields: Mapping[str, Any]) -> dict[str, Any]:
    if not fields:
        return {}

    def lines(key: str) -> tuple[str, ...]:
        return tuple(map(printable, texts(fields.get(key))[:_MOST]))

    fault = text(fields.get("fault"))
    before = text(fields.get("compared_with"))
    summary = f"as fast as accepted on {printable(before)}" if before else "the first of its kind"
    if lines("unsure"):
        summary = f"too much noise to tell: {'; '.join(lines('unsure'))}"
    answers = text(mapping(fields.get("answers")).get("said"))
    if answers:
        summary = f"{summary}; {printable(answers)}"
    worse = lines("worse")
    if fault:
        worse = (f"the load was not completed: {printable(fault)}", *worse)
    return {"load": summary, "load_worse": worse, "load_fails": fields.get("fail") is True}


def _paths(fields: Mapping[str, Any]) -> dict[str, Any]:
    """Which path does not work, and which are slow; empty where none was walked."""
    if not fields:
        return {}
    limit_s = number(fields.get("limit_s"))
    fault, slow = "", []
    for path in mappings(fields.get("paths"))[:_MOST]:
        name = printable(text(path.get("name")) or "a path", _NAME)
        wrong, again_s = text(path.get("fault")), number(path.get("again_s"))
        if wrong and not fault:
            fault = f"{name}: {printable(wrong)}"
        if again_s is not None and limit_s is not None and again_s > limit_s:
            slow.append(
                f"{name}: repeated, its first token comes after {again_s:.1f} s "
                f"(readiness.first_token_s is {limit_s:g})"
            )
    return {"paths": render.walks(fields), "paths_fault": fault, "paths_slow": tuple(slow)}
