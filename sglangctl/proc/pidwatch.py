"""Notices the end of a process that is not our child, at once and without polling."""

from __future__ import annotations

import os
import select

from sglangctl.proc import procfs


class Pidwatch:
    """One process by pid and start time. `fileno` (for poll) is None where pidfds are missing."""

    def __init__(self, pid: int) -> None:
        self.pid = pid
        self._start = _start(pid)
        self.fileno: int | None = None
        try:
            self.fileno = os.pidfd_open(pid)
        except (OSError, AttributeError):
            # Linux < 5.3, a seccomp filter, or gone already: /proc tells, a little later.
            self.fileno = None

    def gone(self) -> bool:
        """Whether it has ended; a zombie that nobody collected has."""
        if self._start is None:
            return True
        if self.fileno is not None:
            poller = select.poll()
            poller.register(self.fileno, select.POLLIN)
            return bool(poller.poll(0))
        found = procfs.stat(self.pid)
        return found is None or found.start != self._start or found.state in procfs.DEAD

    def close(self) -> None:
        if self.fileno is not None:
            os.close(self.fileno)
            self.fileno = None


def _start(pid: int) -> int | None:
    found = procfs.stat(pid)
    return found.start if found else None
