"""sd_notify(3): tells systemd that this program is ready, and what to show in `systemctl status`."""

from __future__ import annotations

import os
import socket

from sglangctl.util.terminal import escaped


def notify(*assignments: str) -> bool:
    """Send `READY=1`, `STATUS=...`; False where nobody listens (not started by systemd)."""
    address = os.environ.get("NOTIFY_SOCKET", "")
    if not address.startswith(("/", "@")):
        return False
    name = "\0" + address[1:] if address[0] == "@" else address
    text = "\n".join(escaped(assignment) for assignment in assignments)
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as out:
        try:
            out.sendto(text.encode(), name)
        except OSError:
            return False
    return True
