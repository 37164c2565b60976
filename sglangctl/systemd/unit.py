"""A unit as systemd has it: many in one `systemctl show`."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from sglangctl.proc import cgroup
from sglangctl.systemd import systemctl
from sglangctl.systemd.unit_names import SWITCH_DROP_IN, watch_unit
from sglangctl.util import lazy_re
from sglangctl.util.values import digits

PROPERTIES = (
    "Id,LoadState,ActiveState,SubState,UnitFileState,NeedDaemonReload,Result,Job,InvocationID,"
    "NRestarts,Restart,StartLimitBurst,RestartUSec,StateChangeTimestampMonotonic,"
    "MainPID,ExecStartPre,ExecMainPID,ExecMainCode,ExecMainStatus,"
    "ExecMainStartTimestampMonotonic,ExecMainExitTimestampMonotonic,"
    "ControlGroup,User,UID,TriggeredBy,FragmentPath,DropInPaths"
)
ENABLED = ("enabled", "enabled-runtime")
RUNNING = ("active", "activating", "deactivating", "reloading", "refreshing")
"""A process of the unit may be there."""
UP = ("active", "activating", "reloading")
"""It runs, and was not told to stop."""
NEVER_STARTED = lazy_re.compile(r"code=exited ; status=(2\d\d)\b")
"""In ExecStartPre: systemd.exec(5), "Process Exit Codes"."""
CLD_EXITED = 1
"""ExecMainCode: 1 exited, 2 killed, 3 dumped (waitid(2))."""


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
    def active(self) -> str:
        """Its ActiveState."""
        return self["ActiveState"]

    @property
    def sub(self) -> str:
        """Its SubState."""
        return self["SubState"]

    @property
    def result(self) -> str:
        """Of its last run: `success`, `exit-code`, `signal`, ..."""
        return self["Result"]

    @property
    def running(self) -> bool:
        return self.active in RUNNING

    @property
    def enabled(self) -> bool:
        return self["UnitFileState"] in ENABLED

    @property
    def job(self) -> bool:
        """A start, stop or restart is queued or at work."""
        return self["Job"] not in ("", "0")

    @property
    def settled(self) -> bool:
        """Whether `invocation_id` is the run to look at: a queued job has not changed it yet,
        while a start job that is at work (activating) has."""
        return not self.job or self.active == "activating"

    @property
    def down(self) -> bool:
        """Neither running nor about to."""
        return self.active in ("inactive", "failed") and not self.job

    @property
    def retried(self) -> bool:
        """It ended, and systemd starts it again after a pause."""
        return self.sub == "auto-restart"

    @property
    def stopping(self) -> bool:
        """It is being stopped, alone or to be started anew."""
        return self.active == "deactivating"

    @property
    def invocation_id(self) -> str:
        """Of its present run, or of its last one; "" when it never ran."""
        return self["InvocationID"]

    @property
    def restarts(self) -> int:
        return self.number("NRestarts") or 0

    @property
    def triggers(self) -> tuple[str, ...]:
        """Timers, sockets and paths that start it again."""
        return tuple(self["TriggeredBy"].split())

    def number(self, name: str) -> int | None:
        """An integer property; None for `[not set]` and the like."""
        return digits(self[name])

    @property
    def drop_ins(self) -> tuple[str, ...]:
        """Files that change it beside its own: somebody else's (a switch's own is in /run)."""
        paths = self["DropInPaths"].split()
        return tuple(path for path in paths if not path.endswith(f"/{SWITCH_DROP_IN}"))

    @property
    def main_pid(self) -> int:
        """0 when there is none (any more)."""
        return self.number("MainPID") or 0

    @property
    def last_main_pid(self) -> int:
        """Of the main process, also when it has ended; 0 when it never ran."""
        return self.number("ExecMainPID") or self.main_pid

    @property
    def started(self) -> float | None:
        """When the last main process was started, on time.monotonic(); None: never."""
        microseconds = self.number("ExecMainStartTimestampMonotonic")
        return microseconds / 1e6 if microseconds else None

    @property
    def changed(self) -> float | None:
        """When it came to its present state, on time.monotonic(); None: never."""
        microseconds = self.number("StateChangeTimestampMonotonic")
        return microseconds / 1e6 if microseconds else None

    @property
    def started_since_boot(self) -> float:
        """The same in seconds since boot, as /proc counts a process's start; 0.0: never.

        /proc also counts the time that a machine slept (CLOCK_BOOTTIME), systemd does not.
        """
        slept = time.clock_gettime(time.CLOCK_BOOTTIME) - time.clock_gettime(time.CLOCK_MONOTONIC)
        return (self.started or 0.0) + slept

    @property
    def exited(self) -> bool:
        """Whether the last main process has ended."""
        return bool(self.number("ExecMainExitTimestampMonotonic"))

    @property
    def exit_status(self) -> int | None:
        """Of the last main process, negative for a signal; None while it runs, or without one.

        Where systemd could not even start a command before it (ExecStartPre), systemd's own status for
        that (200 and above): it would not have started the main process either.
        """
        code, status = self.number("ExecMainCode"), self.number("ExecMainStatus")
        before = NEVER_STARTED.search(self["ExecStartPre"])
        if before and not self.last_main_pid:
            return int(before[1])
        if not self.exited or not self.last_main_pid or code is None or status is None:
            return None
        return returncode(code, status)

    def uid(self) -> int | None:
        """Of its processes; None when its user does not exist."""
        import pwd

        running_as = self.number("UID")
        if running_as is not None:
            return running_as
        user = self["User"]
        if not user:
            return 0
        uid = digits(user)
        if uid is not None:
            return uid
        try:
            return pwd.getpwnam(user).pw_uid
        except KeyError:
            return None

    @property
    def folder(self) -> Path | None:
        """Of its cgroup; None while it has none."""
        return cgroup.folder_of_unit(self["ControlGroup"])

    def pids(self) -> list[int]:
        """The processes of its cgroup, now."""
        # A unit that systemd gave up on may have no ControlGroup and still processes.
        folder = self.folder or cgroup.folder_of_unit(f"/system.slice/{self.name}")
        return cgroup.pids_in(folder) if folder else []


def returncode(code: int, status: int) -> int:
    """An exit status as Python has it (negative for a signal), from systemd's two numbers."""
    return status if code == CLD_EXITED else -status


def show(names: Iterable[str], timeout_s: float = 30.0) -> dict[str, Unit] | None:
    """Name as asked -> unit; None when systemd does not answer, or is not the init.

    A unit that does not exist has LoadState=not-found and ActiveState=inactive.
    """
    asked = list(dict.fromkeys(names))
    if not asked:
        return {}
    if not systemctl.booted():
        return None
    result = systemctl.call("show", f"--property={PROPERTIES}", "--", *asked, timeout_s=timeout_s)
    if not result.ok:
        return None
    blocks = [parse(block) for block in result.stdout.strip("\n").split("\n\n")]
    if len(blocks) != len(asked):
        return None
    return {name: Unit(name, block) for name, block in zip(asked, blocks)}


def find(name: str) -> Unit | None:
    """One unit; None without systemd, or when the unit does not exist."""
    found = (show([name]) or {}).get(name)
    return found if found is not None and found.exists else None


def with_watch(name: str, unit: str) -> tuple[Unit, Unit] | None:
    """The unit of the engine `name` and that of its watch, seen at one time; None without
    systemd."""
    shown = show([unit, watch_unit(name)])
    return (shown[unit], shown[watch_unit(name)]) if shown else None


def parse(text: str) -> dict[str, str]:
    """One block of `systemctl show`."""
    return dict(line.split("=", 1) for line in text.splitlines() if "=" in line)
