"""From the diffs of changed files to the values that changed. Pure."""

from __future__ import annotations

import re
from collections.abc import Sequence

from roles.host.managed import Change
from sglangctl.util.terminal import cut

LINE = re.compile(r"([-+])([A-Za-z][\w.-]*)(?:: |=)(.*)")
"""A line of engine.yaml, of an environment file or of a unit, in a diff."""
WIDTH = 60


def values(changes: Sequence[Change]) -> list[str]:
    """`max-total-tokens 8192 -> 4096` for each value that changed, once; a file's name where its
    diff shows none (a secret, a comment)."""
    found: dict[str, None] = {}
    for one in changes:
        for text in of_diff(one.diff) or [f"{one.item.path.rsplit('/', 1)[1]} {one.why}"]:
            found.setdefault(text)
    return list(found)


def of_diff(diff: Sequence[str]) -> list[str]:
    old: dict[str, list[str]] = {}
    new: dict[str, list[str]] = {}
    for line in diff:
        match = LINE.fullmatch(line)
        if match:
            side = old if match[1] == "-" else new
            side.setdefault(match[2], []).append(cut(match[3].strip().strip('"'), WIDTH))
    return [changed(name, old.get(name), new.get(name)) for name in dict.fromkeys([*old, *new])]


def changed(name: str, old: list[str] | None, new: list[str] | None) -> str:
    if old is None:
        return f"{name} {', '.join(new or [])} (new)"
    if new is None:
        return f"{name} {', '.join(old)} (removed)"
    return f"{name} {', '.join(old)} -> {', '.join(new)}"
