"""systemctl, as argument lists; a host without systemd is a None, not an exception."""

from __future__ import annotations

import os

from sglangctl.proc.command import Result, run


def booted() -> bool:
    """Whether systemd is the init of this machine (sd_booted(3))."""
    return os.path.isdir("/run/systemd/system")


def call(*arguments: str, timeout_s: float = 30.0) -> Result:
    """`systemctl ARGUMENTS`."""
    return run(["systemctl", *arguments], timeout_s)


def going_down() -> bool:
    """Whether the machine is shut down or restarted now."""
    return call("is-system-running").stdout.strip() == "stopping"


def version() -> str | None:
    """systemd's version; None when it is not the init of this machine or does not answer."""
    if not booted():
        return None
    result = call("show", "--property=Version")
    return result.stdout.strip().partition("=")[2] or None if result.ok else None
