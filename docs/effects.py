"""What a change does to an engine that runs, of each inventory key and by hand on the host: found out by
making the change and asking the code that decides (roles/switch/decision.py, drift.py)."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from roles.engine.desired import DesiredEngine, desired_engine
from roles.host.managed import ManagedFile, changes, rights_only
from roles.inventory import schema
from roles.inventory.document import Document
from roles.inventory.load import build
from roles.remote.snapshot import JSON, engine_facts
from roles.switch.decision import decision_of, watch_reasons_of
from roles.switch.drift import drift
from roles.switch.effects import RELOADED
from sglangctl.systemd.unit import UP
from sglangctl.systemd.unit_names import RESUME, watch_unit

RESTART, START, WATCH, RELOAD = "**restart**", "start", "its watch restarts", "write, reload"
RIGHTS, ENABLE, STOP = "chmod, chown", "enable", "stop and disable that unit"
WRITE, NOTHING = "create again", "nothing"
UNITS = "/etc/systemd/system"
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
    return does(after, running(before, after))


def does(engine: DesiredEngine, facts: JSON) -> str:
    """What a deploy of `engine` does to a host: the most that it does to what runs."""
    if decision_of(engine)(facts).needed:
        up = engine_facts(facts, engine.name)["unit"]["ActiveState"] in UP
        return RESTART if up else START
    if watch_reasons_of(engine, SHARED)(facts):
        return WATCH
    found = drift(engine, facts)
    beside = changes([*engine.managed, engine.config], facts["files"])
    for what, word in (
        (found.unit, RELOAD),
        (found.disabled, ENABLE),
        (found.replaced, STOP),
        (found.rights, RIGHTS),
        ([one for one in beside if rights_only(one)], RIGHTS),
        (beside, WRITE),
    ):
        if what:
            return word
    return NOTHING


def running(before: DesiredEngine, after: DesiredEngine) -> JSON:
    """The probe's document of that host, as far as the decision looks."""
    there = {one.path: one for one in (*before.live_files.values(), *before.unit_files.values())}
    there |= {one.path: one for one in (before.config, *SHARED)}
    asked = [*after.live_files.values(), *after.unit_files.values(), after.config]
    files: JSON = {one.path: {"kind": "absent"} for one in asked}
    for path, one in there.items():
        about = {"kind": "file", "sha256": one.sha256, "text": one.masked, "mtime": STAGED}
        files[path] = {**about, "mode": one.mode, "owner": one.owner, "group": one.group}
    for item in before.managed:
        kind = "file" if isinstance(item, ManagedFile) else "directory"
        digest = {"sha256": item.sha256} if isinstance(item, ManagedFile) else {}
        rights = {"mode": item.mode, "owner": item.owner, "group": item.group}
        files[item.path] = {"kind": kind, **digest, **rights}
    unit = {"ActiveState": "active", "UnitFileState": "enabled", "NeedDaemonReload": "no"}
    about = {
        "releases": {"current": before.release.digest},
        "state": {"phase": "live"},
        "unit": {**unit, "started": STAGED + 1},
        "watch": {"ActiveState": "active", "started": STAGED + 1},
    }
    return {
        "time": "2026-01-01T00:00:00Z",
        "files": files,
        "engines": {before.name: about},
        "plans": {},
    }


SHARED = (
    ManagedFile(f"{UNITS}/{watch_unit()}", b"the watch\n"),
    ManagedFile(f"{UNITS}/{RESUME}", b"resume\n"),
)
"""What the host's engines share."""
STAGED = 1_700_000_000.0
"""When the release was staged, in Unix seconds; the engine was started a second later."""
RELEASE = ("engine.yaml", "engine.env", "nccl.env")


def of_file(engine: DesiredEngine, facts: JSON, path: str, **found: Any) -> None:
    facts["files"][path] = {**facts["files"][path], **found}


def line_in_unit(line: str) -> Callable[[DesiredEngine, JSON], None]:
    """Somebody adds a line to the unit's file."""

    def edit(engine: DesiredEngine, facts: JSON) -> None:
        unit = engine.installed_unit(facts)
        of_file(engine, facts, unit.path, sha256="0" * 64, text=f"{unit.masked}{line}\n")

    return edit


def live(**found: Any) -> Callable[[DesiredEngine, JSON], None]:
    """Something of a file of the live release."""
    return lambda engine, facts: of_file(
        engine, facts, f"{engine.spec.current}/{RELEASE[0]}", **found
    )


def about(part: str, **found: Any) -> Callable[[DesiredEngine, JSON], None]:
    """Something that systemd or state.json says of the engine."""

    def edit(engine: DesiredEngine, facts: JSON) -> None:
        of = facts["engines"][engine.name]
        of[part] = {**(of.get(part) or {}), **found}

    return edit


def path_of(which: Callable[[DesiredEngine], str], **found: Any) -> Any:
    return lambda engine, facts: of_file(engine, facts, which(engine), **found)


ABSENT = {"kind": "absent"}
BY_HAND: dict[str, Callable[[DesiredEngine, JSON], None]] = {
    f"{', '.join(f'`{one}`' for one in RELEASE)} of the live release: another content": live(
        sha256="0" * 64, text=None
    ),
    "a file of the live release is missing": live(**ABSENT),
    "a file of the live release was written after the engine's start, and is right": live(
        mtime=STAGED + 3600
    ),
    "a file of the live release: another mode, owner or group": live(mode="0666"),
    f"the unit's file: {', '.join(f'`{one}`' for one in RELOADED)}, a comment": line_in_unit(
        "RestartSec=77"
    ),
    "the unit's file: any other setting": line_in_unit("Environment=A=1"),
    "the unit's file is missing": path_of(lambda one: one.unit_files[one.spec.unit].path, **ABSENT),
    "the unit's file: another mode, owner or group": path_of(
        lambda one: one.unit_files[one.spec.unit].path, mode="0666"
    ),
    "systemd has not read the unit since it changed": about("unit", NeedDaemonReload="yes"),
    "a drop-in of somebody else (plan and `sglangctl status` name it)": about(
        "unit", DropInPaths="/etc/systemd/system/x.d/o.conf"
    ),
    "the unit does not start at boot": about("unit", UnitFileState="disabled"),
    "the unit is down, failed or given up by systemd": about("unit", ActiveState="failed"),
    "a unit that the engine replaces runs or is enabled again": about(
        "replaces", **{"vllm.service": {"ActiveState": "active", "UnitFileState": "enabled"}}
    ),
    "`/etc/sglangctl/engines/NAME.json`": path_of(lambda one: one.config.path, sha256="0" * 64),
    f"the watch's unit `{watch_unit()}`": path_of(lambda one: SHARED[0].path, sha256="0" * 64),
    "the watch does not run": about("watch", ActiveState="inactive"),
    "the log's folder, a cache folder, the log's rotation: missing": path_of(
        lambda one: one.spec.log_folder, **ABSENT
    ),
    "the log's folder, a cache folder: another mode, owner or group": path_of(
        lambda one: one.spec.log_folder, mode="0777"
    ),
    "a run wrote the live release again and was interrupted before its switch": about(
        "state", owes="its live release was written again"
    ),
    "a switch was interrupted": about("state", phase="switching"),
}
"""What somebody did on the host (or an interrupted run left) -> that, in the probe's document."""


def by_hand(what: str) -> str:
    """What a deploy does about it."""
    wanted = engine({"model": {"path": "/m"}, "replaces": ["vllm.service"]})
    facts = running(wanted, wanted)
    BY_HAND[what](wanted, facts)
    return does(wanted, facts)


def by_effect() -> dict[str, list[str]]:
    """Effect -> the keys of the inventory that have it, the strongest first."""
    found: dict[str, list[str]] = {name: [] for name in (RESTART, WATCH, NOTHING)}
    for path, value in keys(schema.definition("engine")):
        found[effect(*changed(path, value))].append(path)
    return found
