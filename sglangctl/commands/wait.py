"""Return when an engine serves (0), or when it never will (1, with the cause).

ExecStartPost of the engine's unit, so that "active" means serving. It reads the watch's verdicts on
this very run; where no watch runs, it looks for itself and writes nothing. It ends when the main
process is gone: else the unit would stay "activating" for ever. SIGTERM (somebody stops the unit)
is a success. Exit status 2: could not wait (no such engine, nothing to read).
"""

from __future__ import annotations

import argparse
import os
import signal
import sys
import time
from pathlib import Path
from types import FrameType

from sglangctl.diagnosis.outcomes import GIVEN_UP, SERVED
from sglangctl.engine import run as runs
from sglangctl.engine.run import Run
from sglangctl.proc.pidwatch import Pidwatch
from sglangctl.startup.assessment import Assessment
from sglangctl.state import journal, starts
from sglangctl.state.config import EngineConfig, load_engine
from sglangctl.state.paths import Paths
from sglangctl.util.terminal import cut, harmless
from sglangctl.watch import lock
from sglangctl.watch.logtail import OWN_WORDS

LOOK_S = 0.2
JOURNAL_S = 5.0
"""For a living watch to open this run's journal."""
LAST_WORDS_S = 2.5
"""From the main process's end to the watch's verdict on it."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("name", metavar="NAME", help="the engine")
    parser.add_argument("--pid", type=int, help="the engine's main process, where no unit runs it")


def main_pid(given: int | None) -> int | None:
    """The process to wait for: the argument, or systemd's $MAINPID (0 or absent: none)."""
    text = os.environ.get("MAINPID", "")
    return given or (int(text) if text.isdigit() and int(text) > 0 else None)


def run(args: argparse.Namespace) -> int:
    signal.signal(signal.SIGTERM, _stop_asked)
    paths = Paths()
    config = load_engine(args.name, paths)
    pid = main_pid(args.pid)
    if pid is not None:
        invocation = os.environ.get("INVOCATION_ID", "")
        found = runs.of_pid(pid) if args.pid else runs.of_control_process(pid, invocation)
    else:
        found = runs.of_unit(config.unit)
        words = _never_ran(config)
        if words is not None:
            return _failed(config, words[0], words[1:])
    if found is None:
        return _failed(config, f"{config.name} does not run: its main process is gone", ())
    return _told(config, Waiting(config, paths, found).until_decided())


class Waiting:
    """Follows one run until it serves or never will."""

    def __init__(self, config: EngineConfig, paths: Paths, found: Run) -> None:
        self.config, self.paths, self.run = config, paths, found
        self.main = Pidwatch(found.main_pid)

    def until_decided(self) -> Assessment:
        """The last word on the start."""
        file = self._journal()
        if file is not None:
            assessment = self._read(file)
            if assessment is not None:
                return assessment
        return self._look_ourselves(file)

    def _journal(self) -> Path | None:
        """The watch's journal of this run, None where none comes."""
        folder = self.paths.starts(self.config.name)
        end = time.monotonic() + JOURNAL_S
        while lock.watched(folder) and time.monotonic() < end:
            name = starts.of_invocation(self.config.name, self.run.id, self.paths)
            if name is not None:
                return folder / name / starts.JOURNAL
            time.sleep(LOOK_S)
        return None

    def _read(self, file: Path) -> Assessment | None:
        """The watch's verdict, as soon as one decides; None when the watch dies before that, or
        says no last word on a main process that is gone."""
        gone_since: float | None = None
        rest = b""
        with open(file, "rb") as lines:
            while True:
                complete, separator, rest = (rest + lines.read()).rpartition(b"\n")
                for event in journal.events(complete.split(b"\n") if separator else ()):
                    said = Assessment.of_event(event) if event["kind"] == "verdict" else None
                    if said is not None and _over(said):
                        return said
                if not lock.watched(file.parent.parent):
                    return None
                if self.main.gone():
                    now = time.monotonic()
                    gone_since = now if gone_since is None else gone_since
                    if now - gone_since >= LAST_WORDS_S:
                        return None
                time.sleep(LOOK_S)

    def _look_ourselves(self, file: Path | None) -> Assessment:
        """No watch: gather the evidence here, and write nothing. `file`: what one saw before."""
        from sglangctl.engine.http import endpoint
        from sglangctl.masking.masker import Masker
        from sglangctl.startup.fold import Startup
        from sglangctl.watch.collect import Collection, End
        from sglangctl.watch.launch_event import fields
        from sglangctl.watch.logtail import Logtail, beginning_of_run
        from sglangctl.watch.recorder import Recorder

        startup = Startup(self.config.limits)
        log = self.paths.engine_log(self.config.name)
        offset: int | None = None
        for event in journal.read(file) if file is not None else ():
            if event["kind"] == "log" and isinstance(event.get("offset"), int):
                offset = event["offset"]
            startup.feed(event)
        if offset is None:
            try:
                offset = beginning_of_run(log, self.run.id, time.time() - self.run.t())
            except OSError:
                offset = 0  # not there yet, or not ours to read: the tail says which
        recorder = Recorder(startup)
        where = endpoint(self.config, self.paths, self.run.pids)
        tail = Logtail(log, offset)
        tail.mask = where.mask  # evidence is shown
        collection = Collection(self.config, self.run, where, tail, recorder, prove=False)
        launch = fields(
            self.config, self.paths, self.run.main_pid, self.run.id, self.run.launched, Masker(())
        )
        recorder.record(self.run.t(), "launch", **launch)
        try:
            while True:
                collection.step()
                assessment = recorder.assessment
                if assessment is not None and _over(assessment):
                    return assessment
                if collection.main.gone():
                    collection.finish(End(None))
                    # It has failed then; a late cause gets its time.
                    limit = self.run.t() + self.config.limits.failed_cause_s
                    return startup.tick(limit)
                collection.sleep()
        finally:
            collection.close()


def _never_ran(config: EngineConfig) -> tuple[str, ...] | None:
    """What systemd says of a unit that does not run, and the next step; None of one that does."""
    from sglangctl.systemd.unit import find
    from sglangctl.systemd.unit_failure import why

    unit = find(config.unit)
    if unit is None or not (unit.down or unit.retried):
        return None
    found = why(config.unit, unit.result, unit.exit_status)
    if found is None:
        words = f"{config.name} does not run: systemd was not asked to start it"
        return words, f"next: systemctl start {config.unit}"
    see = f"see: sglangctl status {config.name}; sglangctl logs {config.name}"
    return f"{config.name} does not run: {found.sentence}", f"next: {found.next_step}", see


def _over(assessment: Assessment) -> bool:
    return assessment.outcome in SERVED | GIVEN_UP


def _told(config: EngineConfig, assessment: Assessment) -> int:
    from sglangctl.diagnosis.causes import CAUSES

    if assessment.outcome in SERVED:
        return 0
    if assessment.stopped_by:
        from sglangctl.startup.render import stopped

        return _failed(config, f"{config.name} was {stopped(assessment.stopped_by)}", ())
    if assessment.outcome == "deadline":
        words = f"was not serving after {config.limits.start_s:g} s (still {assessment.phase})"
    else:
        words = f"will not serve; it failed while {assessment.phase}"
    lines = [f"> {line}" for line in assessment.evidence]
    cause = CAUSES.get(assessment.cause or "")
    if cause is not None:
        words += f": {cause.sentence} ({cause.name})"
        lines.append(f"next: {cause.next_step.replace('NAME', config.name)}")
    lines.append(f"see: sglangctl status {config.name}; evidence: sglangctl bundle {config.name}")
    return _failed(config, f"{config.name} {words}", lines)


def _failed(config: EngineConfig, sentence: str, lines: list[str] | tuple[str, ...]) -> int:
    for line in (sentence, *lines):
        print(OWN_WORDS + cut(harmless(line), 400), file=sys.stderr)
    return 1


def _stop_asked(number: int, frame: FrameType | None) -> None:
    # The unit is being stopped: systemd would call a helper that dies of the signal a failure.
    os._exit(0)
