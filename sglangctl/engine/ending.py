"""End what is left of a start that has failed, as the engine's own user."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager

from sglangctl.engine.run import Run
from sglangctl.proc import pidfds
from sglangctl.proc.pidfds import Target


def end(run: Run, limit_s: float, kill_s: float = 5.0) -> None:
    """SIGTERM to the main process, and after `limit_s` seconds SIGKILL to all processes of the run
    but this one.

    Of a failed start there is nothing to finish, and SGLang does not obey SIGTERM between its failed
    bind and the end of its warm-up: systemd would wait for TimeoutStopSec. Raises nothing: what is
    left then is systemd's.
    """
    with targets([run.main_pid]) as main:
        for one in main:
            one.send(signal.SIGTERM)
        pidfds.wait_gone(main, limit_s)
    with targets([pid for pid in run.pids() if pid != os.getpid()]) as rest:
        for one in rest:
            one.send(signal.SIGKILL)
        pidfds.wait_gone(rest, kill_s)


@contextmanager
def targets(pids: list[int]) -> Iterator[list[Target]]:
    known = [one for one in map(pidfds.identify, pids) if one is not None]
    found = [Target(one) for one in known]
    try:
        yield found
    finally:
        for one in found:
            one.close()
