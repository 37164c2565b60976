"""A limit for file transfers: on time without a byte, not on the whole, which may be gigabytes.

pyinfra and paramiko wait for a host for ever. A host that stops reading in the middle of a file would
hold up its own deploy, and with that the end of the run for all others.
"""

from __future__ import annotations

import io
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import gevent

from roles.remote.failing import HostFailed
from roles.remote.limits import STALL_S


class Stalled(BaseException):
    """Nothing moved. Not an Exception: pyinfra tries again on those."""


class Moving(io.FileIO):
    """A file whose reads and writes say that a transfer moves."""

    def __init__(self, path: Path, mode: str) -> None:
        super().__init__(path, mode)
        self.moved = time.monotonic()

    def read(self, size: int | None = -1, /) -> bytes:
        self.moved = time.monotonic()
        return super().read(-1 if size is None else size) or b""

    def write(self, data: Any, /) -> int:
        self.moved = time.monotonic()
        return super().write(data)


@contextmanager
def watched(file: Moving, what: str) -> Iterator[None]:
    """HostFailed with `what` in it when the transfer of `file` within has not moved for STALL_S."""
    transfer = gevent.getcurrent()

    def watch() -> None:
        while (left := file.moved + STALL_S - time.monotonic()) > 0:
            gevent.sleep(left)
        gevent.kill(transfer, Stalled)

    watcher = gevent.spawn(watch)
    try:
        yield
    except Stalled:
        raise HostFailed(
            f"{what}: nothing moved for {STALL_S:g} s: check the host's disk and its network, "
            "then deploy again"
        ) from None
    finally:
        watcher.kill()
