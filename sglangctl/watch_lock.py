"""Who watches an engine: the watch holds a lock on `starts/.watch` for as long as it lives.

A reader learns from it whether the journal is still being written; a second watch of the same
engine is refused. The kernel lets go of the lock when the watch dies, however it dies.
"""

from __future__ import annotations

import errno
import fcntl
import os
import time
from pathlib import Path

NAME = ".watch"


class Locked(Exception):
    """Another process watches this engine."""


def acquire(starts: Path, gid: int = -1, patience_s: float = 3.0) -> int:
    """Take the lock; returns the descriptor that holds it. Locked, or OSError.

    A reader's look at the lock holds it for a moment, hence the patience.
    """
    descriptor = os.open(starts / NAME, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o640)
    os.fchown(descriptor, -1, gid)
    end = time.monotonic() + patience_s
    while True:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return descriptor
        except BlockingIOError:
            if time.monotonic() >= end:
                os.close(descriptor)
                raise Locked(f"{starts / NAME} is held: another watch runs") from None
            time.sleep(0.05)


def watched(starts: Path) -> bool:
    """Whether a watch is alive. Not being able to look counts as no: then one looks oneself."""
    try:
        descriptor = os.open(starts / NAME, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except OSError as error:
        return error.errno in (errno.EWOULDBLOCK, errno.EACCES)
    finally:
        os.close(descriptor)
    return False
