"""Which unit or container a process belongs to, on cgroup v1, hybrid and v2."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

from sglangctl.proc.folders import folders_below
from sglangctl.util import lazy_re

CGROUP = Path("/sys/fs/cgroup")
UNIT = lazy_re.compile(r"[^/]+\.(?:service|scope|socket|mount|slice)$")
CONTAINER = lazy_re.compile(r"(?:^|[/:-])([0-9a-f]{64})(?:\.scope)?(?:/|$)")


def path_of(text: str) -> str | None:
    """The path that systemd manages, from the text of /proc/PID/cgroup.

    v2 has the one line `0::/path`; v1 and hybrid have `N:name=systemd:/path` as well. In hybrid both
    say the same, but in a container whose v1 hierarchies are read-only: there `name=systemd` is `/`
    for everybody. The other way round, of a container's processes on a hybrid machine `0::` may say
    no more than Docker's own service. So: `name=systemd`, if it says anything.
    """
    named, unified = None, None
    for line in text.splitlines():
        parts = line.split(":", 2)
        if len(parts) != 3:
            continue
        if parts[1] == "name=systemd":
            named = parts[2]
        elif parts[0] == "0" and parts[1] == "":
            unified = parts[2]
    return unified if named in (None, "/") and unified is not None else named


def container_in(text: str) -> str | None:
    """The 64-digit id of the container of a process, from /proc/PID/cgroup."""
    for line in text.splitlines():
        match = CONTAINER.search(line.split(":", 2)[-1])
        if match:
            return match.group(1)
    return None


def folder_of_unit(control_group: str, root: Path = CGROUP) -> Path | None:
    """The folder with cgroup.procs for systemd's `ControlGroup` property, None if absent."""
    if not control_group:
        return None
    for base in (root, root / "systemd", root / "unified"):
        folder = base / control_group.lstrip("/")
        if (folder / "cgroup.procs").exists():
            return folder
    return None


def pids_in(folder: Path) -> list[int]:
    """All processes of a cgroup and of the cgroups below it; empty when it is gone."""
    found: list[int] = []
    for one in folders_below(folder):
        # One that has gone meanwhile must not hide the processes of the others.
        with suppress(OSError), open(f"{one}/cgroup.procs", encoding="ascii") as file:
            found += [int(line) for line in file.read().split()]
    return found
