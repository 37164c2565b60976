"""Who watches an engine: the watch holds two locks in `starts` for as long as it lives.

`.watch.lock` keeps a second watch of the same engine away. Only root can open it: whoever can open
a file for reading can flock(2) it, and the engine's own user must not keep its watch from running.
`.watch` is the sign that readers look at (`wait` runs as that user): the watch has a shared lock
on it, which nobody's own can stand in the way of, and readers only ask for it (fcntl(2),
F_OFD_GETLK). The kernel lets go of both when the watch dies, however it dies.
"""

from __future__ import annotations

import fcntl
import os
import struct
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from sglangctl.util.errors import Unusable

LOCK, SIGN = ".watch.lock", ".watch"
FLOCK = "hhqqi"
"""struct flock of 64-bit Linux: type, whence, start, length (0: to the end), pid."""


@dataclass(frozen=True)
class Held:
    """The locks of a watch."""

    descriptors: tuple[int, ...]

    def close(self) -> None:
        """Let go of them."""
        for descriptor in self.descriptors:
            os.close(descriptor)


def acquire(starts: Path, gid: int = -1) -> Held:
    """Take the locks; Unusable, or OSError. `gid`: the group that may read the sign (-1: the
    folder's)."""
    flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
    lock = os.open(starts / LOCK, flags, 0o600)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        sign = os.open(starts / SIGN, flags, 0o640)
    except BlockingIOError:
        os.close(lock)
        raise Unusable(f"{starts / LOCK} is held: another watch runs") from None
    except OSError:
        os.close(lock)
        raise
    held = Held((lock, sign))
    try:
        os.fchown(sign, -1, gid)
        # A file system without such locks: then readers look for themselves.
        with suppress(OSError):
            fcntl.fcntl(sign, fcntl.F_OFD_SETLK, struct.pack(FLOCK, fcntl.F_RDLCK, 0, 0, 0, 0))
    except OSError:
        held.close()
        raise
    return held


def watched(starts: Path) -> bool:
    """Whether a watch is alive. Not being able to look counts as no: then one looks oneself."""
    try:
        descriptor = os.open(starts / SIGN, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        # Would a lock of all for writing meet somebody's? It is only asked, never taken.
        asked = struct.pack(FLOCK, fcntl.F_WRLCK, 0, 0, 0, 0)
        answer = fcntl.fcntl(descriptor, fcntl.F_OFD_GETLK, asked)
    except OSError:
        return False
    finally:
        os.close(descriptor)
    kind: int = struct.unpack(FLOCK, answer)[0]
    return kind != fcntl.F_UNLCK
