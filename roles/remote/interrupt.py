"""Ctrl-C while hosts are followed: each follower ends at once, the work continues on the hosts.

pyinfra's own handler leaves the operations hanging and exits 0.
"""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

import gevent

_following: set[Any] = set()
_previous: list[Any] = []


class Interrupted(BaseException):
    """Ctrl-C. Not an Exception: no handler for errors of a library may swallow it."""


@contextmanager
def interruptible() -> Iterator[None]:
    """While inside, Ctrl-C raises Interrupted here, in each host's greenlet.

    The next Ctrl-C is pyinfra's own again.
    """
    current = gevent.getcurrent()
    if not isinstance(current, gevent.Greenlet):
        yield  # not run by pyinfra's pool: Python's KeyboardInterrupt is right
        return
    if not _following:
        _previous.append(signal.signal(signal.SIGINT, _interrupt))
    _following.add(current)
    try:
        yield
    finally:
        _following.discard(current)
        if not _following:
            _restore()


def _interrupt(signum: int, frame: FrameType | None) -> None:
    _restore()
    for greenlet in list(_following):
        greenlet.kill(Interrupted, block=False)


def _restore() -> None:
    while _previous:
        signal.signal(signal.SIGINT, _previous.pop())
