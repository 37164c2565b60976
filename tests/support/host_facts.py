"""The probe's document of a host on which an engine runs and all is as it should be."""

from __future__ import annotations

from typing import Any

from roles.engine.desired import DesiredEngine
from roles.host.managed import Managed, ManagedDirectory, ManagedFile


def as_it_should_be(item: Managed) -> dict[str, Any]:
    kind = "directory" if isinstance(item, ManagedDirectory) else "file"
    said = {"kind": kind, "mode": item.mode, "owner": item.owner, "group": item.group}
    if isinstance(item, ManagedFile):
        return {**said, "sha256": item.sha256, "text": item.masked}
    return said


def facts_of(wanted: DesiredEngine, **about: Any) -> dict[str, Any]:
    files = [
        *wanted.managed,
        *wanted.live_files.values(),
        *wanted.unit_files.values(),
        wanted.config,
    ]
    running = {
        "releases": {"current": wanted.release.digest},
        "state": {"phase": "live"},
        "unit": {"ActiveState": "active", "UnitFileState": "enabled", "NeedDaemonReload": "no"},
        "watch": {"ActiveState": "active"},
        "last": {"outcome": "ready", "served_after_s": 174.0},
    }
    return {
        "time": "2026-01-01T00:01:00Z",
        "files": {item.path: as_it_should_be(item) for item in files},
        "engines": {wanted.name: {**running, **about}},
        "plans": {},
    }
