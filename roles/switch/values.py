"""From the diffs of changed files to the values that changed. Pure."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any

from roles.host.managed import Change
from roles.inventory.locked import differences
from roles.switch.effects import MISSING
from sglangctl.util.terminal import cut
from sglangctl.util.values import mapping, texts

LINE = re.compile(r'([-+]) *"?([A-Za-z][\w.-]*)"?(?:: |=)(.*?),?')
"""A line of engine.yaml, of an environment file, of a unit or of the engine's JSON, in a diff."""
WIDTH = 60
MOST = 20
"""Packages with another version that are named; a new SGLang may bring a hundred."""
FEW = 4
FOLLOWS = re.compile(
    r"RequiresMountsFor |ExecStart - -> -|PATH /opt/sglang/venvs/"
    r"|\w+ /var/cache/sglang/\S+ -> /var/cache/sglang/"  # of the environment that compiles
)
"""Begins what follows from other values: it is no reason beside those."""


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
    found = []
    if old.get("version") != new["version"]:
        found.append(changed("version", [shown(old.get("version"))], [shown(new["version"])]))
    found += of_packages(texts(old.get("packages")), new["packages"])
    return found or ["its environment changed (packages, Python or kernel)"]


def of_packages(old: Sequence[str], new: Sequence[str]) -> list[str]:
    """`torch 2.14.0 -> 2.14.1` for each package, SGLang itself left out: its version has a line of its
    own. What only came or only went is counted where it is much (an engine gets its first lock)."""
    both, came, went = [], [], []
    for name, was, now in differences(old, new):
        if name == "sglang":
            continue
        if was and now:
            both.append(f"{name} {shown(was)} -> {shown(now)}")
        elif now:
            came.append(f"{name} {shown(now)} (new)")
        elif was:
            went.append(f"{name} {shown(was)} (removed)")
    if len(both) > MOST:
        both[MOST:] = [f"{len(both) - MOST} more packages have another version"]
    for some, word in ((came, "new"), (went, "removed")):
        if len(some) > FEW:
            some[:] = [f"{len(some)} packages ({word})"]
    return [*both, *came, *went]


def shown(value: Any) -> str:
    return cut(str(value or "none"), WIDTH)


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
