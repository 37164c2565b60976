"""Wait for the verdict on one start: the watch's, or our own where no watch runs."""

from __future__ import annotations

import time
from pathlib import Path

from sglangctl.diagnosis.outcomes import GIVEN_UP, SERVED
from sglangctl.engine.run import Run
from sglangctl.proc.pidwatch import Pidwatch
from sglangctl.startup.assessment import Assessment
from sglangctl.state import journal, starts
from sglangctl.state.config import EngineConfig
from sglangctl.state.paths import Paths
from sglangctl.watch import lock

LOOK_S = 0.2
JOURNAL_S = 5.0
"""How long to wait for a living watch to open this run's journal."""
LAST_WORDS_S = 2.5
"""How long to wait for the watch's verdict after the main process has ended."""


class Waiting:
    """Follows one run until it serves or has failed."""

    def __init__(self, config: EngineConfig, paths: Paths, found: Run) -> None:
        self.config, self.paths, self.run = config, paths, found
        self.main = Pidwatch(found.main_pid)

    def until_decided(self) -> Assessment:
        """The verdict that decides."""
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
        """The watch's verdict, as soon as one decides. None when the watch dies before that, or
        gives no verdict on a main process that is gone."""
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
        """No watch: gather the evidence here, and write nothing. `file`: an earlier watch's journal."""
        from sglangctl.engine.http import endpoint
        from sglangctl.masking.masker import Masker
        from sglangctl.startup.fold import Startup
        from sglangctl.watch.collect import Collection
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
                offset = 0  # not there yet, or not permitted: the tail says which
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
                    collection.finish(None)
                    # It has failed. A cause may still come from the log within this time.
                    limit = self.run.t() + self.config.limits.failed_cause_s
                    return startup.tick(limit)
                collection.sleep()
        finally:
            collection.close()


def never_ran(config: EngineConfig, paths: Paths) -> list[str] | None:
    """Why the unit does not run and the next step, a line each. None of a unit that runs."""
    from sglangctl.systemd.unit import find
    from sglangctl.watch.before_start import why

    unit = find(config.unit)
    if unit is None or not (unit.down or unit.retried):
        return None
    found = why(config, unit, paths)
    if found is None:
        sentence = f"{config.name} does not run: it was never started"
        return [sentence, f"next: systemctl start {config.unit}"]
    see = f"see: sglangctl status {config.name}; sglangctl logs {config.name}"
    return [f"{config.name} does not run: {found.sentence}", f"next: {found.next_step}", see]


def failure(config: EngineConfig, assessment: Assessment) -> list[str]:
    """Why the start failed, the evidence and the next step, a line each. Empty when it serves."""
    from sglangctl.diagnosis.causes import CAUSES

    if assessment.outcome in SERVED:
        return []
    if assessment.stopped_by:
        from sglangctl.startup.render import stopped

        return [f"{config.name} was {stopped(assessment.stopped_by)}"]
    if assessment.outcome == "deadline":
        outcome = f"was not serving after {config.limits.start_s:g} s (still {assessment.phase})"
    else:
        outcome = f"does not serve: it failed while {assessment.phase}"
    cause = CAUSES.get(assessment.cause or "")
    because = f": {cause.sentence} ({cause.name})" if cause else ""
    lines = [f"{config.name} {outcome}{because}", *(f"> {line}" for line in assessment.evidence)]
    if cause is not None:
        lines.append(f"next: {cause.next_for(config.name, assessment.evidence, config.model)}")
    see = f"see: sglangctl status {config.name}; evidence: sglangctl bundle {config.name}"
    return [*lines, see]


def _over(assessment: Assessment) -> bool:
    return assessment.outcome in SERVED | GIVEN_UP
