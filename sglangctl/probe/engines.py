"""The probe's part about engines: units, releases, the last verdict."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from typing import Any

from sglangctl.engine import deleted_log
from sglangctl.state import release, starts
from sglangctl.state.config import EngineConfig
from sglangctl.state.paths import Paths
from sglangctl.systemd.unit import Unit
from sglangctl.systemd.unit_names import watch_unit
from sglangctl.util.errors import Failed

SHOWN = (
    "LoadState",
    "ActiveState",
    "SubState",
    "UnitFileState",
    "NeedDaemonReload",
    "Result",
    "NRestarts",
    "MainPID",
    "ExecMainStartTimestampMonotonic",
    "InvocationID",
    "FragmentPath",
    "DropInPaths",
)
VERDICT = (
    *("t", "phase", "outcome", "cause", "evidence", "stopped_by"),
    *("served_after_s", "phases"),
)


def units_of(engine: EngineConfig) -> list[str]:
    """Every unit whose state matters to this engine."""
    return [engine.unit, watch_unit(engine.name), *engine.replaces]


def engine_state(
    engine: EngineConfig, shown: Mapping[str, Unit] | None, paths: Paths
) -> dict[str, Any]:
    """What the controller compares. `unit_name`: the unit that the engine is on this host (its own, or
    a slot); `unit`, `watch` and `replaces` are null without systemd."""
    return {
        "unit_name": engine.unit,
        "port": engine.port,
        "model": engine.model,
        "unit": None if shown is None else starts_at_boot(shown.get(engine.unit), paths),
        "watch": None if shown is None else properties(shown.get(watch_unit(engine.name))),
        "replaces": None
        if shown is None
        else {name: properties(shown.get(name)) for name in engine.replaces},
        "log_deleted": log_deleted(shown.get(engine.unit) if shown else None, engine.name, paths),
        **releases(engine.name, paths),
        "last": last_verdict(engine.name, paths),
    }


def log_deleted(unit: Unit | None, name: str, paths: Paths) -> bool:
    """Whether it runs and writes to a log that was deleted."""
    log = paths.engine_log(name)
    return unit is not None and deleted_log.still_written(unit.main_pid, log) is not None


def properties(unit: Unit | None) -> dict[str, Any] | None:
    """Systemd's properties, and `started`: when the main process was started, in Unix seconds."""
    if unit is None:
        return None
    return {**{name: unit[name] for name in SHOWN}, "started": started(unit)}


def starts_at_boot(unit: Unit | None, paths: Paths) -> dict[str, Any] | None:
    """The properties of an engine's unit, with its state of enablement as it is now: systemd goes on
    saying `enabled` when the link is gone, until it reads its files again."""
    found = properties(unit)
    if unit is None or not found or found["UnitFileState"] != "enabled":
        return found
    wanted = any(os.path.lexists(folder / unit.asked) for folder in paths.units.glob("*.wants"))
    return found if wanted else {**found, "UnitFileState": "disabled"}


def started(unit: Unit) -> float | None:
    """In Unix seconds; None for a unit that never was."""
    return None if unit.started is None else time.time() - time.monotonic() + unit.started


def releases(name: str, paths: Paths) -> dict[str, Any]:
    """The digests behind the links and of all complete releases, and state.json without the
    texts of the units that ran before it (they may hold secrets)."""
    links = {
        link.replace("-", "_"): release.link_target(name, link, paths) for link in release.LINKS
    }
    state, reason = None, None
    try:
        known = release.read_state(name, paths)
    except Failed as error:
        known, reason = None, str(error)
    if known is not None:
        state = {
            "phase": known.phase,
            "to": known.to,
            "came_from": known.came_from,
            "time": known.time,
            "reason": known.reason,
            "fallback": known.fallback,
            "owes": known.owes,
            "foreign": [one.get("unit") for one in known.foreign],
        }
    return {
        "releases": {**links, "staged": release.sound(name, paths)},
        "state": state,
        "state_reason": reason,
    }


def last_verdict(name: str, paths: Paths) -> dict[str, Any] | None:
    """The watch's last word about the newest start, None before its first."""
    try:
        start = starts.latest(name, paths)
        if start is None:
            return None
        event = starts.last_verdict(paths.starts(name) / start / starts.JOURNAL)
    except OSError:
        return None
    if event is None:
        return {"start": start}
    return {"start": start, **{key: event.get(key) for key in VERDICT}}
