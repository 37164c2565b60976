"""The host's lock: one switch, stop or removal at a time, and who holds it.

The lock is flock(2) on one file. The file says who holds it, so that a second caller can name
them, and so that a watch knows who had an engine stopped. What a holder that died left behind is
recognised by the start time of its process.

Only root may open the file: whoever can open one for reading can lock it as well (flock(2) asks for
no right to write). So who has the lock is for root alone to read.
"""

from __future__ import annotations

import fcntl
import json
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from sglangctl.proc import procfs
from sglangctl.state.paths import Paths
from sglangctl.util.errors import Failed
from sglangctl.util.terminal import escaped

LOCK = "run/sglangctl-switch.lock"
WRITTEN_S = 1.0
"""From taking the lock to having written who has it: milliseconds."""


class Busy(Failed):
    """The lock is held; the text is one sentence with the holder, since when, and what to do."""


@dataclass(frozen=True)
class Holder:
    """Who has the lock. `since` is UTC; `start` is /proc's start time of the process."""

    pid: int
    start: int
    since: str
    engine: str
    what: str
    """`switch of chat to release 78cc653cada7`, `stop of chat`, ..."""

    @property
    def sentence(self) -> str:
        return (
            f"a {self.what} runs on this host (pid {self.pid}, since {self.since}): "
            f"wait until it has ended (journalctl -fu sglangctl-switch, or ps {self.pid}), "
            "then run it again"
        )


def private(path: Path) -> int:
    """A lock file, open, that nobody else can open (an earlier version made it readable for
    everybody)."""
    path.parent.mkdir(parents=True, exist_ok=True)
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    os.fchmod(descriptor, 0o600)
    return descriptor


@contextmanager
def locked(paths: Paths, engine: str, what: str) -> Iterator[None]:
    """Hold the host's lock for `what` is done to `engine`. Busy when somebody else has it."""
    descriptor = private(paths.root / LOCK)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise Busy(f"nothing was changed. {_met(paths)}") from None
        found = procfs.stat(os.getpid())
        holder = Holder(
            pid=os.getpid(),
            start=found.start if found else -1,
            since=time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
            engine=engine,
            what=what,
        )
        os.ftruncate(descriptor, 0)
        # On a full disk the lock is held all the same; who has it cannot be said then.
        with suppress(OSError):
            os.write(descriptor, json.dumps(asdict(holder)).encode())
        try:
            yield
        finally:
            os.ftruncate(descriptor, 0)
    finally:
        os.close(descriptor)


def holder(paths: Paths) -> Holder | None:
    """Who holds the lock now; None when nobody does, or when we are not root.
    Reading never blocks a holder."""
    try:
        document: Any = json.loads((paths.root / LOCK).read_text(encoding="utf-8"))
        found = Holder(**{**document, "what": escaped(str(document["what"]))})
    except (OSError, ValueError, TypeError, KeyError, RecursionError):
        return None
    process = procfs.stat(found.pid) if isinstance(found.pid, int) else None
    return found if process is not None and process.start == found.start else None


def is_held(paths: Paths) -> bool:
    """Whether somebody holds the lock now. OSError where we may not look; reading never blocks a holder."""
    try:
        (paths.root / LOCK).open("rb").close()
    except FileNotFoundError:
        return False
    return holder(paths) is not None


def _met(paths: Paths) -> str:
    end = time.monotonic() + WRITTEN_S
    while True:
        found = holder(paths)
        if found is not None:
            return found.sentence
        if time.monotonic() >= end:
            return (
                "another sglangctl has this host's lock: wait until it has ended "
                f"(fuser -v /{LOCK} names it), then run it again"
            )
        time.sleep(0.05)
