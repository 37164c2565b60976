"""Unit and container of a process, as seen from here (cgroup v1, hybrid and v2)."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass

from sglangctl.proc import cgroup, procfs
from sglangctl.util import lazy_re

CONTAINER_PART = lazy_re.compile(r"(?:[a-z0-9-]+-)?[0-9a-f]{64}(?:\.scope)?")
USER_MANAGER = lazy_re.compile(r"user@[^/]*\.service")
ENGINES = (("libpod", "podman"), ("docker", "docker"), ("containerd", "nerdctl"))
"""What a cgroup path says of the program that made the container -> its command."""


@dataclass(frozen=True)
class Membership:
    """`unit` is the innermost one (a user's manager's too), for people. `system_unit` is the
    system manager's own, what `systemctl stop` would stop. Both None inside a container, whose
    units are not ours. A container of a user's own (rootless) counts as a part of user@UID.service."""

    unit: str | None
    system_unit: str | None
    container: str | None
    """The 64-digit id."""
    container_engine: str | None
    """docker, podman or nerdctl, where the path says so."""


HOST_PID_NAMESPACE = "pid:[4026531836]"
"""The first PID namespace of a machine: PROC_PID_INIT_INO in include/linux/proc_ns.h."""


def on_the_host() -> bool:
    """Whether we are in the machine's own PID namespace, where every process can be seen."""
    try:
        return os.readlink(f"{procfs.PROC}/self/ns/pid") == HOST_PID_NAMESPACE
    except OSError:
        return False


def own_root() -> str:
    """The cgroup below which this system's units are: "" but for a container without a cgroup
    namespace of its own."""
    path = cgroup.path_of(procfs.read_text(1, "cgroup") or "") or ""
    return re.sub(r"/init\.scope$", "", path).rstrip("/")


def of_text(text: str, root: str = "") -> Membership:
    """From the text of /proc/PID/cgroup; `root` as `own_root` gives it."""
    path = cgroup.path_of(text) or ""
    if root and (path == root or path.startswith(root + "/")):
        path = path[len(root) :]
    parts = [part for part in path.split("/") if part]
    # Below their own manager users name cgroups as they like, after anybody's container, too.
    theirs = next((i for i, part in enumerate(parts) if USER_MANAGER.fullmatch(part)), len(parts))
    at = next((i for i, part in enumerate(parts[:theirs]) if CONTAINER_PART.fullmatch(part)), None)
    container, engine = None, None
    if at is not None:
        outside = "/".join(parts[: at + 1])
        match = re.search(r"[0-9a-f]{64}", parts[at])
        container = match.group() if match else None
        engine = next((command for word, command in ENGINES if word in outside), None)
        # A scope of the container's own (docker-ID.scope) is a unit of this host; what is in it is not.
        parts = parts[: at + 1]
    elif not root and theirs == len(parts):
        # v1 without a systemd hierarchy: another controller's path may still name the container.
        container = cgroup.container_in(text)
        engine = next((command for word, command in ENGINES if word in text), None)
    units = [part for part in parts if cgroup.UNIT.fullmatch(part) and not part.endswith(".slice")]
    if container and (at is None or not parts[at].endswith(".scope")):
        units = []
    return Membership(
        unit=units[-1] if units else None,
        system_unit=units[0] if units else None,
        container=container,
        container_engine=engine if container else None,
    )


def of(pid: int, root: str = "") -> Membership:
    """Of a process; all None when it is gone."""
    return of_text(procfs.read_text(pid, "cgroup") or "", root)
