"""Identifies one process, and signals exactly that one.

A pid alone is reused. The start time tells two processes of one pid apart, but only to a hundredth
of a second; since Linux 6.9 a pidfd's inode number is unique for the whole boot (before that it is
the same for all processes, and comparing it changes nothing).
"""

from __future__ import annotations

import os
import select
import signal
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from sglangctl.proc import procfs


@dataclass(frozen=True)
class Identity:
    """One process. `start`: clock ticks since boot; `inode`: of its pidfd, 0 without pidfds."""

    pid: int
    start: int
    inode: int = 0


def supported() -> bool:
    """Whether this Python and kernel have pidfds (Linux >= 5.3)."""
    if not hasattr(os, "pidfd_open"):
        return False
    try:
        os.close(os.pidfd_open(os.getpid()))
    except OSError:
        return False
    return True


def identify(pid: int) -> Identity | None:
    """The process that has this pid now; None when there is none.

    What is read about the pid afterwards belongs to it only if `same` says so then.
    """
    with opened(pid) as handle:
        found = procfs.stat(pid)
        if found is None:
            return None
        return Identity(pid, found.start, 0 if handle is None else os.fstat(handle).st_ino)


def same(identity: Identity) -> bool:
    """Whether the pid still belongs to that process (a zombie counts)."""
    return identify(identity.pid) == identity


@contextmanager
def opened(pid: int) -> Iterator[int | None]:
    """A pidfd, closed at the end; None when the process is gone or pidfds are unavailable."""
    handle = None
    if hasattr(os, "pidfd_open"):
        try:
            handle = os.pidfd_open(pid)
        except OSError:
            handle = None
    try:
        yield handle
    finally:
        if handle is not None:
            os.close(handle)


class Target:
    """A process held by a pidfd, so that a signal can reach no other.

    `gone` from the start when the pid is free or belongs to another process by now. The order
    matters: the pidfd is opened first and compared afterwards, so what was compared is what it
    points at.
    """

    def __init__(self, identity: Identity) -> None:
        self.identity = identity
        self._handle: int | None = None
        self._error: str | None = None
        try:
            handle = os.pidfd_open(identity.pid)
        except ProcessLookupError:
            return
        except OSError as error:  # no file descriptor left, say: not the same as gone
            self._error = error.strerror or str(error)
            return
        found = procfs.stat(identity.pid)
        matches = (
            found is not None
            and found.start == identity.start
            and identity.inode in (0, os.fstat(handle).st_ino)
        )
        if matches:
            self._handle = handle
        else:
            os.close(handle)

    def gone(self) -> bool:
        """Ended (a zombie has ended: it holds no device and no memory)."""
        if self._handle is None:
            return self._error is None
        poll = select.poll()
        poll.register(self._handle, select.POLLIN)
        return bool(poll.poll(0))

    def send(self, number: int) -> str | None:
        """Signal it; None, or why that was not possible. Gone is not an error."""
        if self._handle is None:
            return self._error
        try:
            signal.pidfd_send_signal(self._handle, number)
        except ProcessLookupError:
            return None
        except OSError as error:
            return error.strerror or str(error)
        return None

    def close(self) -> None:
        if self._handle is not None:
            os.close(self._handle)
            self._handle = None

    @property
    def handle(self) -> int | None:
        return self._handle


def wait_gone(targets: Iterable[Target], seconds: float) -> list[Target]:
    """Wait until all have ended; returns those that have not when the time is over."""
    left = [target for target in targets if not target.gone()]
    end = time.monotonic() + seconds
    while left:
        remaining = end - time.monotonic()
        if remaining <= 0:
            break
        poll = select.poll()
        for target in left:
            if target.handle is not None:
                poll.register(target.handle, select.POLLIN)
        # At most half a second: a target that could not be opened has nothing to poll.
        poll.poll(min(remaining, 0.5) * 1000)
        left = [target for target in left if not target.gone()]
    return left
