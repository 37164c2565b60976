"""systemctl disable, without losing a unit file that is only a link."""

from __future__ import annotations

import os

from sglangctl.free.model import UnitStep
from sglangctl.systemd import systemctl


def disable(step: UnitStep) -> str | None:
    """Keep the unit down after a reboot; None, or why that failed.

    `systemctl disable` takes away a unit file that is a symbolic link to elsewhere: it is put
    back, so that `systemctl enable` can undo all of this.
    """
    target = None
    if step.fragment and os.path.islink(step.fragment):
        target = os.readlink(step.fragment)
    result = systemctl.call("disable", "--", step.unit)
    if not result.ok:
        return f"systemctl disable {step.unit} failed: {result.stderr.strip()}"
    if target is not None and not os.path.lexists(step.fragment):
        try:
            os.symlink(target, step.fragment)
        except OSError as error:
            return f"{step.fragment} cannot be put back: {error}"
        systemctl.call("daemon-reload")
    return None
