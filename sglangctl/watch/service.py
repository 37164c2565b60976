"""Follow run after run of one engine, and write the journal of each."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from types import FrameType

from sglangctl.diagnosis.outcomes import SERVED
from sglangctl.engine import run as runs
from sglangctl.state.config import ConfigError, EngineConfig, load_engine, located
from sglangctl.state.paths import Paths
from sglangctl.systemd import systemctl, unit_run
from sglangctl.systemd.notify import notify
from sglangctl.util.errors import Unusable
from sglangctl.util.terminal import escaped
from sglangctl.watch.follow_run import Follow
from sglangctl.watch.logtail import Logtail

IDLE_S = 0.25
END_S = 15.0
"""For a command that the watch runs and has to end: SGLang obeys SIGTERM within seconds, or not at all."""


class Watch:
    """Follows run after run of one engine."""

    def __init__(self, config: EngineConfig, paths: Paths, log: Path) -> None:
        self.config, self.paths = config, paths
        self.tail = Logtail(log)
        self.stopped = False
        self._follow: Follow | None = None

    def stop(self, number: int, frame: FrameType | None) -> None:
        """SIGTERM: end silently; the command that the watch runs is ended first."""
        self.stopped = True
        if self._follow is not None:
            self._follow.wake()

    def unit(self) -> int:
        """Every run of the engine's unit, until SIGTERM."""
        if not systemctl.booted():
            raise Unusable("there is no systemd here: name a process with --pid, or a command")
        notify("READY=1", f"STATUS={self.config.name}: no start yet")
        done: str | None = None
        first = True
        while not self.stopped:
            name = located(self.config, self.paths).unit
            present = unit_run.invocation(name)
            found = runs.of_unit(name) if present not in (None, done) else None
            if found is None or found.id == done:
                first = first and present is not None
                self.tail.poll()  # what is written between two starts belongs to none
                time.sleep(IDLE_S)
                continue
            self._reload()
            follow = self._open(found, seen_from_start=not first)
            first = False
            follow.until(partial(self._superseded, found.id))
            # A stop of the engine and of its watch, one after the other: the end is written still.
            if not follow.ended and (follow.gone() or not self.stopped):
                follow.finish(unit_run.exit_of(name, found.id, found.main_pid))
            done = found.id
            self._close(follow)
        return 0

    def process(self, pid: int) -> int:
        """One process that somebody else started."""
        found = runs.of_pid(pid)
        if found is None:
            raise Unusable(f"there is no process {pid}")
        notify("READY=1")
        follow = self._open(found, seen_from_start=False)
        follow.until(lambda: self.stopped)
        if not self.stopped:
            follow.finish(None)
        self._close(follow)
        return 0 if follow.outcome in SERVED else 1

    def command(self, argv: list[str]) -> int:
        """Start `argv` in a session of its own, its output appended to the log, and watch it."""
        self.tail.path.parent.mkdir(parents=True, exist_ok=True)
        self.tail.poll()  # from the log's present end on
        output = os.open(self.tail.path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o640)
        try:
            child = subprocess.Popen(
                argv,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                start_new_session=True,
            )
        except OSError as error:
            raise Unusable(f"{argv[0]} cannot be started: {error.strerror}") from None
        finally:
            os.close(output)
        found = runs.of_pid(child.pid)
        if found is None:
            raise Unusable(f"process {child.pid} is gone")
        notify("READY=1")
        try:
            follow = self._open(found, seen_from_start=True, started=argv)
            follow.until(partial(self._hand_on, child, follow))
            status = child.wait()
            follow.finish(status)
            self._close(follow)
        finally:
            end(child)  # no command may run unwatched
        return 128 - status if status < 0 else status

    def _reload(self) -> None:
        """What a deploy changed since (limits, model, port) holds from the next run on."""
        try:
            self.config = load_engine(self.config.name, self.paths)
        except ConfigError as error:
            _show(f"{self.config.name}: keeps the configuration that it had: {error}")

    def _superseded(self, run_id: str) -> bool:
        return self.stopped or unit_run.invocation(self.config.unit) not in (None, run_id)

    def _hand_on(self, child: subprocess.Popen[bytes], follow: Follow) -> bool:
        """Pass our SIGTERM on, once; the run is over only when the command is."""
        if self.stopped:
            self.stopped = False
            follow.stopping("SIGTERM to sglangctl watch")
            child.terminate()
        return False

    def _open(self, found: runs.Run, seen_from_start: bool, started: Sequence[str] = ()) -> Follow:
        self._follow = Follow(
            self.config, self.paths, found, self.tail, seen_from_start, show=_show, started=started
        )
        return self._follow

    def _close(self, follow: Follow) -> None:
        self._follow = None
        follow.close()


def end(child: subprocess.Popen[bytes]) -> None:
    """End the command and its whole session: SIGTERM, then SIGKILL after END_S."""
    if child.poll() is not None:
        return
    child.terminate()
    limit = time.monotonic() + END_S
    ended = os.WEXITED | os.WNOHANG | os.WNOWAIT
    # Not waited for yet, the number is still its own, and so is its group.
    while os.waitid(os.P_PID, child.pid, ended) is None and time.monotonic() < limit:
        time.sleep(IDLE_S)
    os.killpg(child.pid, signal.SIGKILL)
    child.wait()


def _show(text: str) -> None:
    if not notify(f"STATUS={text}"):
        print(escaped(text), file=sys.stderr, flush=True)
