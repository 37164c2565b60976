"""Why an engine's unit does not run, from systemd alone: no watch saw it, or there was nothing to
see because systemd could not start the program at all.

Sources: systemd.exec(5), "Process Exit Codes" (200 and above are systemd's own), and
systemd.service(5), `Result`.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Why:
    """What happened and what to do, one sentence each."""

    sentence: str
    next_step: str


_DEPLOY = "deploy again: it is created again"
_STEPS: dict[int, tuple[str, str, str]] = {
    200: ("CHDIR", "its working folder is missing or not readable for its user", _DEPLOY),
    203: (
        "EXEC",
        "its program, or the interpreter of it, is missing or may not be executed",
        "deploy again: the venv is created again; ExecStart is in: systemctl cat UNIT",
    ),
    205: ("LIMITS", "a resource limit of the unit cannot be set", ""),
    206: ("OOM_ADJUST", "OOMScoreAdjust cannot be set", ""),
    209: (
        "STDOUT",
        "its log cannot be opened: the folder is missing, or the disk is full",
        "df /var/log; deploy again: the folder is created again",
    ),
    216: ("GROUP", "the group of its user does not exist", _DEPLOY),
    217: ("USER", "the user that it runs as does not exist", _DEPLOY),
    218: ("CAPABILITIES", "its capabilities cannot be set", ""),
    219: ("CGROUP", "its control group cannot be made", ""),
    222: ("STDERR", "its log cannot be opened", "df /var/log; deploy again"),
    226: (
        "NAMESPACE",
        "its sandbox cannot be made: a path that the unit names is missing, or this machine "
        "allows no mounts (a container)",
        "journalctl -u UNIT -n 20 names the path",
    ),
    228: ("SECCOMP", "its system call filter cannot be set", ""),
    232: ("ADDRESS_FAMILIES", "its address families cannot be restricted", ""),
    233: ("RUNTIME_DIRECTORY", "its runtime folder cannot be made", "df /run"),
    238: ("STATE_DIRECTORY", "its state folder cannot be made", "df /var/lib"),
    239: ("CACHE_DIRECTORY", "its cache folder cannot be made", "df /var/cache"),
    240: ("LOGS_DIRECTORY", "its log folder cannot be made", "df /var/log"),
    243: ("CREDENTIALS", "its credentials cannot be set up", ""),
}
_RESULTS = {
    "resources": (
        "systemd could not prepare the start: a file that the unit names is missing (an "
        "environment file of the release), or there was no room for another process",
        "journalctl -u UNIT -n 20 names it; deploy again: the release is written again",
    ),
    "oom-kill": ("the kernel's OOM killer ended it", "journalctl -k -n 50"),
    "timeout": ("it did not start or stop within the unit's time", ""),
    "start-limit-hit": (
        "it was started too often in too short a time",
        "systemctl reset-failed UNIT, then start it again",
    ),
}


def spawn_step(status: int | None) -> str | None:
    """`203/EXEC: ...` for an exit status that is systemd's own: the program never ran."""
    if status is None or not 200 <= status <= 245:
        return None
    name, meaning, _ = _STEPS.get(status, ("", "systemd could not start the program", ""))
    return f"{status}{'/' if name else ''}{name}: {meaning}"


def before_main(result: str, status: int | None) -> bool:
    """Whether a command that the unit runs before its program (ExecStartPre) ended the start."""
    return status is None and result not in ("", "success")


def why(unit: str, result: str, status: int | None) -> Why | None:
    """Why `unit` failed; None where systemd knows of no failure.

    result: systemd's `Result`; status: the main process's end, negative for a signal, None where
    there was none.
    """
    look = f"journalctl -u {unit} -n 20"
    step = spawn_step(status)
    if result in ("", "success"):
        return None
    if step is not None and status is not None:
        following = _STEPS.get(status, ("", "", ""))[2] or look
        return Why(f"{unit} could not be started: {step}", following.replace("UNIT", unit))
    if result in _RESULTS:
        meaning, following = _RESULTS[result]
        return Why(f"{unit} failed: {meaning}", following.replace("UNIT", unit) or look)
    if status is None:
        return Why(f"{unit} failed before it had a main process ({result})", look)
    ended = f"signal {-status}" if status < 0 else f"exit status {status}"
    return Why(f"{unit} failed: its main process ended with {ended}", look)
