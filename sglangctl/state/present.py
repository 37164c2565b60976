"""An engine's unit and its watch in systemd, and which start's journal is the unit's present one."""

from __future__ import annotations

from dataclasses import dataclass

from sglangctl.state import starts
from sglangctl.state.paths import Paths
from sglangctl.systemd import systemctl
from sglangctl.systemd.engine_unit import returncode

PROPERTIES = (
    "ActiveState,SubState,Result,InvocationID,NRestarts,Job,"
    "ExecMainPID,ExecMainCode,ExecMainStatus,ExecMainExitTimestampMonotonic"
)
STAYS = ("active", "reloading", "deactivating")
"""ActiveStates of a run that is there until a queued job changes it."""


@dataclass(frozen=True)
class Present:
    """What systemd says of the engine's unit and of its watch, at one time."""

    active: str
    sub: str
    result: str
    invocation_id: str
    restarts: int
    job: bool
    """A start, stop or restart is queued or at work."""
    watch: str
    """ActiveState of the watch."""
    exit_status: int | None = None
    """Of the last main process, negative for a signal; None while it runs, or without one."""

    @property
    def settled(self) -> bool:
        """Whether `invocation_id` is the start to look at: a queued job has not changed it yet,
        while a start job that is at work (activating) has."""
        return not self.job or self.active == "activating"

    @property
    def down(self) -> bool:
        """Neither running nor about to."""
        return self.active in ("inactive", "failed") and not self.job

    @property
    def ending(self) -> bool:
        """It is being stopped, alone or to be started anew."""
        return self.active == "deactivating"


def watch_unit(name: str) -> str:
    return f"sglang-watch@{name}.service"


def present(name: str, unit: str) -> Present | None:
    """None without systemd, where an engine has no unit."""
    result = systemctl.systemctl("show", f"--property={PROPERTIES}", "--", unit, watch_unit(name))
    blocks = [
        dict(line.split("=", 1) for line in block.splitlines() if "=" in line)
        for block in result.stdout.split("\n\n")
    ]
    if not result.ok or len(blocks) != 2:
        return None
    values, watch = blocks
    restarts = values.get("NRestarts", "")
    ended = values.get("ExecMainPID", "0") != "0" and values.get(
        "ExecMainExitTimestampMonotonic", "0"
    ) not in ("", "0")
    return Present(
        active=values.get("ActiveState", ""),
        sub=values.get("SubState", ""),
        result=values.get("Result", ""),
        invocation_id=values.get("InvocationID", ""),
        restarts=int(restarts) if restarts.isdigit() else 0,
        job=values.get("Job", "") not in ("", "0"),
        watch=watch.get("ActiveState", ""),
        exit_status=_returncode(values) if ended else None,
    )


def _returncode(values: dict[str, str]) -> int | None:
    try:
        return returncode(int(values["ExecMainCode"]), int(values["ExecMainStatus"]))
    except (KeyError, ValueError):
        return None


def start_of(name: str, unit: Present | None, paths: Paths) -> str | None:
    """The start that the unit is in, None while there is none; without systemd, or of a unit that
    systemd has forgotten, the latest."""
    if unit is None or (not unit.invocation_id and unit.settled):
        return starts.latest(name, paths)
    if not unit.settled:
        return None
    return starts.of_invocation(name, unit.invocation_id, paths)


def shown_start(name: str, unit: Present | None, paths: Paths) -> str | None:
    """The start to tell of: also one that a queued job is about to end."""
    if unit is not None and unit.job and unit.active in STAYS:
        return starts.of_invocation(name, unit.invocation_id, paths)
    return start_of(name, unit, paths)
