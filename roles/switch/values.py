"""From the diffs of changed files to the values that changed. Pure."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any

from roles.host.managed import Change
from roles.switch.effects import MISSING
from sglangctl.util.terminal import cut
from sglangctl.util.values import mapping

LINE = re.compile(r'([-+]) *"?([A-Za-z][\w.-]*)"?(?:: |=)(.*?),?')
"""A line of engine.yaml, of an environment file, of a unit or of the engine's JSON, in a diff."""
WIDTH = 60
FOLLOWS = ("RequiresMountsFor ", "ExecStart - -> -", "PATH /opt/sglang/venvs/")
"""Settings that follow from other values: they are no reason beside those."""


def values(changes: Sequence[Change]) -> list[str]:
    """`max-total-tokens 8192 -> 4096` for each value that changed, once; a file's name where its
    diff shows none (a secret, a comment)."""
    found: dict[str, None] = {}
    for one in changes:
        missing = [f"{one.item.path.rsplit('/', 1)[1]} is missing"] if one.why == MISSING else []
        for text in (
            missing or of_diff(one.diff) or [f"{one.item.path.rsplit('/', 1)[1]} {one.why}"]
        ):
            found.setdefault(text)
    return list(found)


def of_manifest(fact: Mapping[str, Any], wanted: bytes) -> list[str]:
    """What of the environment changed, from the live manifest.json and the wanted one."""
    try:
        old = mapping(json.loads(str(fact.get("text"))))
    except ValueError:
        return []
    new = json.loads(wanted)
    if not old or old.get("venv") == new["venv"]:
        return []
    sides = [(shown(old.get(name)), shown(new[name])) for name in ("version", "packages")]
    named = zip(("version", "packages"), sides)
    found = [changed(name, [was], [now]) for name, (was, now) in named if was != now]
    return found or ["its environment changed (packages, Python or kernel)"]


def shown(value: Any) -> str:
    """Of a list of packages those beside SGLang itself, whose version has a line of its own."""
    several = value if isinstance(value, list) else [value]
    text = " ".join(str(one) for one in several if not str(one).startswith("sglang=="))
    return cut(text or "none", WIDTH)


def of_diff(diff: Sequence[str]) -> list[str]:
    old: dict[str, list[str]] = {}
    new: dict[str, list[str]] = {}
    for line in diff:
        match = LINE.fullmatch(line)
        if match:
            side = old if match[1] == "-" else new
            side.setdefault(match[2], []).append(cut(match[3].strip().strip('"'), WIDTH))
    found = {name: changed(name, old.get(name), new.get(name)) for name in [*old, *new]}
    if {"ExecStart"} & old.keys() & new.keys():
        found["ExecStart"] = changed("ExecStart", *words(diff))
    return list(found.values())


def words(diff: Sequence[str]) -> tuple[list[str], list[str]]:
    """The words of the last ExecStart of a diff that are new or gone: the rest of it is long."""
    lines = {line[0]: line.split() for line in diff if line[1:].startswith("ExecStart=")}
    old, new = lines.get("-", []), lines.get("+", [])
    gone = [word for word in old[1:] if word not in new]
    came = [word for word in new[1:] if word not in old]
    return [" ".join(gone) or "-"], [" ".join(came) or "-"]


def changed(name: str, old: list[str] | None, new: list[str] | None) -> str:
    if old is None:
        return f"{name} {', '.join(new or [])} (new)"
    if new is None:
        return f"{name} {', '.join(old)} (removed)"
    return f"{name} {', '.join(old)} -> {', '.join(new)}"
