"""Folders and units that an engine may not use: our own, and the system's."""

from __future__ import annotations

import re
from collections.abc import Iterable
from fnmatch import fnmatchcase

from roles.inventory.names import names

OUR_FOLDERS = names(
    "/etc/sglangctl /opt/sglang /usr/local/lib/sglangctl /var/cache/sglang /var/cache/sglangctl "
    "/var/lib/sglangctl /var/log/sglang"
)
"""What deploys/remove.py deletes, with all that is in it."""

_VITAL = {
    "a unit of this tool": names("sglangctl-* sglang-watch@*"),
    "the way to the host": names(
        "ssh.service sshd.service ssh@* sshd@* networking.service NetworkManager.service"
    ),
    "a part of the system": names("systemd-* dbus* user@* getty@* serial-getty@*"),
    "a part of NVIDIA's driver": names("nvidia-persistenced.service nvidia-fabricmanager.service"),
    "every container's engine (name the container in `containers`)": names(
        "docker.service containerd.service"
    ),
}


def tidy(path: str) -> str:
    """Without doubled, trailing and /./ parts: systemd wants a normalised path."""
    return "/" + "/".join(part for part in path.split("/") if part not in ("", "."))


def within(path: str, folders: Iterable[str]) -> str | None:
    """The one of some folders that an absolute path is or lies in, if any."""
    return next((one for one in folders if f"{tidy(path)}/".startswith(f"{one}/")), None)


def not_replaceable(unit: str) -> str | None:
    """What a unit is that no engine may stop and disable; None: it may be replaced."""
    for what, patterns in _VITAL.items():
        if any(fnmatchcase(unit, pattern) for pattern in patterns):
            return what
    if re.search(r"@\.service\Z", unit):
        return "a template, of which no unit runs (its instances have a name after the @)"
    return None
