"""Units of systemd as dataclasses: many in one call."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from sglangctl.proc import cgroup
from sglangctl.systemd import systemctl

PROPERTIES = (
    "Id",
    "LoadState",
    "ActiveState",
    "SubState",
    "UnitFileState",
    "NeedDaemonReload",
    "Result",
    "NRestarts",
    "Restart",
    "MainPID",
    "ExecMainPID",
    "ExecMainStartTimestampMonotonic",
    "ControlGroup",
    "User",
    "UID",
    "TriggeredBy",
    "FragmentPath",
    "InvocationID",
)
ENABLED = ("enabled", "enabled-runtime")
RUNNING = ("active", "activating", "deactivating", "reloading", "refreshing")


@dataclass(frozen=True)
class Unit:
    """What systemd says of one unit. `asked` is the name that was asked for (Id may differ)."""

    asked: str
    properties: Mapping[str, str]

    def __getitem__(self, name: str) -> str:
        return self.properties.get(name, "")

    @property
    def name(self) -> str:
        return self["Id"] or self.asked

    @property
    def exists(self) -> bool:
        return self["LoadState"] not in ("", "not-found")

    @property
    def running(self) -> bool:
        return self["ActiveState"] in RUNNING

    @property
    def enabled(self) -> bool:
        return self["UnitFileState"] in ENABLED

    @property
    def triggers(self) -> tuple[str, ...]:
        """Timers, sockets and paths that start it again."""
        return tuple(self["TriggeredBy"].split())

    def number(self, name: str) -> int | None:
        """An integer property; None for `[not set]` and the like."""
        return int(self[name]) if re.fullmatch(r"\d+", self[name]) else None

    @property
    def last_main_pid(self) -> int:
        """Of the main process, also when it has ended; 0 when it never ran."""
        return self.number("ExecMainPID") or self.number("MainPID") or 0

    @property
    def main_start_s(self) -> float:
        """Seconds since boot at which the main process was started."""
        return (self.number("ExecMainStartTimestampMonotonic") or 0) / 1e6

    def uid(self) -> int | None:
        """Of its processes; None when its user does not exist."""
        import pwd

        running_as = self.number("UID")
        if running_as is not None:
            return running_as
        user = self["User"]
        if not user:
            return 0
        if user.isdigit():
            return int(user)
        try:
            return pwd.getpwnam(user).pw_uid
        except KeyError:
            return None

    def pids(self) -> list[int]:
        """The processes of its cgroup, now."""
        # A unit that systemd gave up on may have no ControlGroup and still processes.
        path = self["ControlGroup"] or f"/system.slice/{self.name}"
        folder = cgroup.folder_of_unit(path)
        return cgroup.pids_in(folder) if folder else []


def show(names: Iterable[str], timeout_s: float = 30.0) -> dict[str, Unit] | None:
    """Name as asked -> unit; None when systemd does not answer (or is not there)."""
    asked = list(dict.fromkeys(names))
    if not asked:
        return {}
    if not systemctl.booted():
        return None
    result = systemctl.systemctl(
        "show", "--property=" + ",".join(PROPERTIES), "--", *asked, timeout_s=timeout_s
    )
    if not result.ok:
        return None
    blocks = [parse(block) for block in result.stdout.strip("\n").split("\n\n")]
    if len(blocks) != len(asked):
        return None
    return {name: Unit(name, block) for name, block in zip(asked, blocks)}


def parse(text: str) -> dict[str, str]:
    """One block of `systemctl show`."""
    return dict(line.split("=", 1) for line in text.splitlines() if "=" in line)


def clock_offset_s() -> float:
    """Seconds to add to systemd's monotonic times to compare with /proc's start times, which
    also count the time a machine slept (CLOCK_BOOTTIME)."""
    import time

    return time.clock_gettime(time.CLOCK_BOOTTIME) - time.clock_gettime(time.CLOCK_MONOTONIC)


def version() -> str | None:
    """systemd's version; None when it is not the init of this machine or does not answer."""
    if not systemctl.booted():
        return None
    result = systemctl.systemctl("show", "--property=Version")
    return result.stdout.strip().partition("=")[2] or None if result.ok else None
