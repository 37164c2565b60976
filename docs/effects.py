"""What a change of each inventory key does to an engine that runs: found out by making the change and
asking the code that decides (roles/switch/decision.py)."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from roles.engine.desired import DesiredEngine, desired_engine
from roles.inventory import schema
from roles.inventory.document import Document
from roles.inventory.load import build
from roles.switch.decision import decision_of, watch_reasons_of

RESTART, WATCH, NOTHING = "restart", "watch restart", "nothing"
EFFECTS = {
    RESTART: "a new release: the engine restarts",
    WATCH: "its configuration is written and its watch restarts; the engine runs on",
    NOTHING: "nothing on the engine: the deploy itself reads it",
}
DRAFT = {"path": "/d", "steps": 3, "topk": 2, "draft_tokens": 4}
AROUND: dict[str, dict[str, Any]] = {
    **{f"drafter.{key}": {"drafter": DRAFT} for key in (*DRAFT, "algorithm")},
    "tensor_parallel": {"gpus": [0, 1]},
}
"""What a key needs beside it."""
VALUES: dict[str, Any] = {
    "drafter.steps": 5,
    "drafter.topk": 3,
    "drafter.draft_tokens": 8,
    "model.path": "/models/other",
}
"""Where the schema's example would be refused here, or be the same."""
LEFT_OUT = ("base", "was", "kernel", "api_key")
"""`base` is another way to write the rest, `was` has a page of its own, a kernel is part of the
environment's name with its source, and a key is read from a file."""


def keys(part: dict[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Each key of an engine that is no mapping of keys, with a value that it may be changed to."""
    for key, item in part["properties"].items():
        path = f"{prefix}{key}"
        if path in LEFT_OUT:
            continue
        if "properties" in item:
            yield from keys(item, f"{path}.")
        else:
            yield path, VALUES.get(path, item["examples"][0])


def engine(content: dict[str, Any]) -> DesiredEngine:
    """An engine with these keys, on a host of its own."""
    document = Document("f", {"hosts": {"h": {"engines": {"e": content}}}})
    (entry,) = build(document, Path("/nonexistent"), {}).hosts
    if entry.spec is None:
        raise ValueError("\n".join(entry.errors))
    return desired_engine(entry.spec.engines[0])


def changed(path: str, value: Any) -> tuple[DesiredEngine, DesiredEngine]:
    """The engine before and after one key changed."""
    content = {"model": {"path": "/m"}, **copy.deepcopy(AROUND.get(path, {}))}
    before = engine(copy.deepcopy(content))
    *folders, name = path.split(".")
    within = content
    for folder in folders:
        within = within.setdefault(folder, {})
    within[name] = value
    return before, engine(content)


def effect(before: DesiredEngine, after: DesiredEngine) -> str:
    """Of a deploy of `after` to a host on which `before` runs, all as it should be."""
    facts = running(before, after)
    if decision_of(after)(facts).needed:
        return RESTART
    return WATCH if watch_reasons_of(after, [])(facts) else NOTHING


def running(before: DesiredEngine, after: DesiredEngine) -> dict[str, Any]:
    """The probe's document of that host, as far as the decision looks."""
    there = {one.path: one for one in (*before.live_files.values(), *before.unit_files.values())}
    there[before.config.path] = before.config
    asked = [*after.live_files.values(), *after.unit_files.values(), after.config]
    files: dict[str, Any] = {one.path: {"kind": "absent"} for one in asked}
    for path, one in there.items():
        rights = {"mode": one.mode, "owner": one.owner, "group": one.group}
        files[path] = {"kind": "file", "sha256": one.sha256, "text": one.masked, **rights}
    about = {
        "releases": {"current": before.release.digest},
        "state": {"phase": "live"},
        "unit": {"ActiveState": "active", "UnitFileState": "enabled", "NeedDaemonReload": "no"},
        "watch": {"ActiveState": "active"},
    }
    return {
        "time": "2026-01-01T00:00:00Z",
        "files": files,
        "engines": {before.name: about},
        "plans": {},
    }


def by_effect() -> dict[str, list[str]]:
    """Effect -> the keys that have it."""
    found: dict[str, list[str]] = {name: [] for name in EFFECTS}
    for path, value in keys(schema.definition("engine")):
        found[effect(*changed(path, value))].append(path)
    return found
