"""systemctl disable, without losing a unit file that is only a link."""

from __future__ import annotations

import os

from sglangctl.systemd import systemctl
from sglangctl.systemd.unit import find


def disable(unit: str) -> str | None:
    """Keep the unit down after a reboot; None, or why that failed.

    `systemctl disable` takes away a unit file that is a symbolic link to elsewhere: it is put
    back, so that `systemctl enable` can undo all of this.
    """
    found = find(unit)
    fragment = found["FragmentPath"] if found else ""
    target = os.readlink(fragment) if fragment and os.path.islink(fragment) else None
    result = systemctl.call("disable", "--", unit)
    if not result.ok:
        return f"systemctl disable {unit} failed: {result.stderr.strip()}"
    if target is not None and not os.path.lexists(fragment):
        try:
            os.symlink(target, fragment)
        except OSError as error:
            return f"{fragment} cannot be put back: {error}"
        systemctl.call("daemon-reload")
    return None
