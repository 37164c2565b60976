"""Which program a process runs, by the file and not by a name that it gives itself (prctl, argv[0])."""

from __future__ import annotations

import os
import re
import stat

from sglangctl.proc import procfs

SYSTEM = ("/usr/", "/bin/", "/sbin/", "/lib/", "/lib64/", "/nix/store/", "/snap/")
"""Folders in which root alone puts programs."""


def of_the_system(pid: int, uid: int) -> str | None:
    """The path of the process's program where that is a file of this system: root's, in one of
    SYSTEM, writable for root alone. None otherwise, and when the process (of user `uid`) is gone.

    What is at a path in a mount namespace is its owner's choice (/usr/bin/python3 at /usr/bin/Xorg),
    so that a user's process has to run the very file that we see there; root's may run one of a
    container, or one that an update has replaced.
    """
    link = f"{procfs.PROC}/{pid}/exe"
    try:
        path = re.sub(r" \(deleted\)$", "", os.readlink(link))
        runs = os.stat(link)
        if not _of_root(path, runs):
            return None
        return path if uid == 0 or os.path.samestat(runs, os.stat(path)) else None
    except OSError:
        return None


def is_script_of_the_system(path: str) -> bool:
    """Whether `path` is root's file in one of SYSTEM, writable for root alone."""
    try:
        return _of_root(path, os.stat(path))
    except OSError:
        return False


def _of_root(path: str, found: os.stat_result) -> bool:
    writable = found.st_mode & (stat.S_IWGRP | stat.S_IWOTH)
    return path.startswith(SYSTEM) and found.st_uid == 0 and not writable
