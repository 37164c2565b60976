"""Folders and units that an engine may not use: our own, and the system's."""

from __future__ import annotations

import re
from fnmatch import fnmatchcase

OUR_FOLDERS = (
    "/etc/sglangctl",
    "/opt/sglang",
    "/usr/local/lib/sglangctl",
    "/var/cache/sglang",
    "/var/cache/sglangctl",
    "/var/lib/sglangctl",
    "/var/log/sglang",
)
"""What deploys/remove.py deletes, with all that is in it."""

_VITAL = (
    ("sglangctl-*", "a unit of this tool"),
    ("sglang-watch@*", "a unit of this tool"),
    ("ssh.service", "the way to the host"),
    ("sshd.service", "the way to the host"),
    ("ssh@*", "the way to the host"),
    ("sshd@*", "the way to the host"),
    ("systemd-*", "a part of the system"),
    ("dbus*", "a part of the system"),
    ("user@*", "a part of the system"),
    ("getty@*", "a part of the system"),
    ("serial-getty@*", "a part of the system"),
    ("networking.service", "the way to the host"),
    ("NetworkManager.service", "the way to the host"),
    ("nvidia-persistenced.service", "a part of NVIDIA's driver"),
    ("nvidia-fabricmanager.service", "a part of NVIDIA's driver"),
    ("docker.service", "every container's engine (name the container in `containers`)"),
    ("containerd.service", "every container's engine (name the container in `containers`)"),
)


def our_folder(path: str) -> str | None:
    """Our folder that an absolute path is or lies in, if any."""
    parts = [part for part in path.split("/") if part not in ("", ".")]
    tidy = "/" + "/".join(parts)
    return next((own for own in OUR_FOLDERS if tidy == own or tidy.startswith(f"{own}/")), None)


def not_replaceable(unit: str) -> str | None:
    """What a unit is that no engine may stop and disable; None: it may be replaced."""
    for pattern, what in _VITAL:
        if fnmatchcase(unit, pattern):
            return what
    if re.search(r"@\.service\Z", unit):
        return "a template, of which no unit runs (its instances have a name after the @)"
    return None
