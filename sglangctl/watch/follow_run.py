"""Watches one run of an engine from its launch (or from now) to its end, into its journal."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from sglangctl.diagnosis.outcomes import PROVEN
from sglangctl.engine import accepted, former
from sglangctl.engine.http import Endpoint, endpoint
from sglangctl.engine.kinds import Kind
from sglangctl.engine.run import Run
from sglangctl.masking.masker import Masker, secrets_of
from sglangctl.masking.text import secrets_in_argv
from sglangctl.proc import procfs
from sglangctl.startup import render
from sglangctl.startup.assessment import Assessment
from sglangctl.startup.fold import Startup
from sglangctl.state import journal, lock, starts
from sglangctl.state.config import ConfigError, EngineConfig, load_engine
from sglangctl.state.paths import Paths
from sglangctl.state.release import link_target
from sglangctl.systemd import systemctl, unit_run
from sglangctl.systemd.unit import find
from sglangctl.util import os_errors
from sglangctl.watch import launch_event, pipes
from sglangctl.watch.collect import Collection
from sglangctl.watch.jit_caches import JitCaches
from sglangctl.watch.logtail import Logtail, beginning_of_run, mark_end
from sglangctl.watch.recorder import Recorder
from sglangctl.watch.start_folder import open_start

CALM_S = 15.0
"""From a change of the configuration to a new proof: the switch that it belongs to comes first."""
LOOK_S = 0.25
"""Between two looks at whether the unit has another run."""


class Follow:
    """One run. `seen_from_start`: the log file was followed when it began. `started`: its command,
    where we have started it ourselves. `at_gate`: it waits beside the engine that serves."""

    def __init__(
        self,
        config: EngineConfig,
        paths: Paths,
        run: Run,
        tail: Logtail,
        seen_from_start: bool,
        show: Callable[[str], None] = lambda text: None,
        started: Sequence[str] = (),
        at_gate: bool = False,
    ) -> None:
        self.config, self.paths, self.run = config, paths, run
        self._show = show
        # Right after exec, and of a process that has ended, /proc shows no argv.
        secrets = [*secrets_in_argv(procfs.cmdline(run.main_pid)), *secrets_in_argv(list(started))]
        masker = Masker([*secrets_of(paths.current(config.name)), *secrets])
        tail.mask = masker.mask
        self.file, self._writer, resumed = open_start(config, paths, run, not at_gate)
        self._recorder = Recorder(Startup(config.limits), self._writer, self._changed, self._lost)
        self.ended = False
        self._asked: str | None = None
        """What the last proof in the journal was asked for."""
        self._config_at = _written(paths.engine_json(config.name))
        self._unresponsive_t: float | None = None
        self._restarted = False
        environment = launch_event.environment(paths.current(config.name), masker)
        # Of the release, not of the process: systemd changes its folder after it has told its number.
        self._folder = environment.get("HOME")
        self._clean_up()
        offset = self._replay() if resumed else None
        if offset is None:
            offset = _beginning(tail.path, run, seen_from_start)
        if offset is None:
            tail.go_on()
        else:
            tail.seek(offset)
        if not self._recorder.assessment:
            launch = launch_event.fields(config, paths, run.main_pid, run.id, run.launched, masker)
            self._recorder.record(run.t(), "launch", **launch)
        where = endpoint(config, paths, run.pids)

        def tell(text: str) -> None:
            self._show(f"{config.name}: {text}")

        accept = partial(acceptance, config, paths, where, tell)
        self._collection = Collection(
            config,
            run,
            where,
            tail,
            self._recorder,
            prove=self.outcome not in PROVEN or self._asked != config.readiness.asked,
            asked_by=self._who_stops,
            show=tell,
            later=self._later if run.folder is not None else None,
            accept=accept if config.acceptance else None,
            at_gate=at_gate,
            jit=JitCaches(environment),
        )

    @property
    def outcome(self) -> str | None:
        return self._recorder.outcome

    @property
    def phase(self) -> str:
        """Of the last verdict."""
        return self._recorder.assessment.phase if self._recorder.assessment else "launching"

    @property
    def verdict(self) -> dict[str, Any]:
        """The last one, as an event."""
        return self._recorder.assessment.as_dict() if self._recorder.assessment else {}

    def wake(self) -> None:
        """End a sleep, from a signal handler."""
        self._collection.wake()

    def stopping(self, by: str) -> None:
        """Say that the end that comes is wanted."""
        self._collection.stopping(by)

    def gone(self) -> bool:
        """Whether the main process has ended."""
        return self._collection.main.gone()

    def until(self, over: Callable[[], bool]) -> None:
        """Watch until the main process ends or `over` says that something else runs now."""
        next_look = 0.0
        while not self.ended:
            self._collection.step()
            self._restart_if_due()
            if self._collection.main.gone():
                return
            now = time.monotonic()
            if now >= next_look:
                next_look = now + LOOK_S
                self._prove_anew()
                if over():
                    return
            self._collection.sleep(LOOK_S)

    def finish(self, returncode: int | None) -> None:
        """The main process is gone: write its end (None: unknown), and the verdict on it."""
        if self.ended:
            return
        self.ended = True
        self._collection.finish(returncode)
        limit = self.run.t() + self.config.limits.failed_cause_s
        # A verdict that waits for a late cause gets none any more: the log was read to its end.
        while self._recorder.due is not None and self._recorder.due <= limit:
            before = self._recorder.due
            self._recorder.tick(before)
            if self._recorder.due == before:
                break
        self._clean_up()

    def close(self) -> None:
        self._collection.close()
        self._writer.close()

    def _clean_up(self) -> None:
        """What processes that were killed left in the engine's working folder: of this run at its end, of
        an earlier one (a power cut, a watch that was down) at the beginning."""
        if self.run.folder is None or self._folder is None:
            return  # no unit: somebody else's folder
        try:
            pipes.remove(self._folder)
        except OSError as error:
            self._show(f"{self.config.name}: {os_errors.sentence(error)}")

    def _prove_anew(self) -> None:
        """A deploy may change what `ready` asks without a restart: then the proof is none any more.

        A change that a switch follows at once is the next run's.
        """
        written = _written(self.paths.engine_json(self.config.name))
        if written is None or written == self._config_at:
            return
        # One from the future is from before the clock was put back: not waited for.
        if 0 <= time.time() - written < CALM_S:
            return
        self._config_at = written
        try:
            readiness = load_engine(self.config.name, self.paths).readiness
        except ConfigError as error:
            self._show(f"{self.config.name}: keeps the configuration that it had: {error}")
            return
        if readiness.asked != self._collection.config.readiness.asked:
            self._collection.ask_anew(readiness)

    def _replay(self) -> int | None:
        """Fold what an earlier watch wrote of this run; where it was in the log."""
        offset = None
        for event in journal.read(self.file):
            self._recorder.replay(event)
            if event["kind"] == "log" and isinstance(event.get("offset"), int):
                offset = event["offset"]
            self.ended = self.ended or event["kind"] == "exit"
            if event["kind"] == "generate":
                self._asked = event.get("asked")
        return offset

    def _later(self) -> set[str]:
        """The ids of the unit's runs since this one: the present one, and those with a journal. An
        older one's is no sign of a new start: the engine may have read it in its log."""
        name = self.config.name
        present = unit_run.invocation(self.config.unit)
        if present is None:
            unit = find(self.config.unit)  # one that has ended already has an id still
            present = unit.invocation_id if unit is not None else ""
        found = {present}
        here = starts.of_invocation(name, self.run.id, self.paths)
        all_names = starts.names(self.paths.starts(name))
        if here in all_names:
            newer = all_names[all_names.index(here) + 1 :]
            found |= {start.rpartition("-")[2] for start in newer}
        return found - {"", self.run.id}

    def _who_stops(self) -> str:
        """Who has the unit stopped: our switch, stop or removal, which holds the lock
        until that is done; else all that is known is that systemd was asked."""
        holder = lock.holder(self.paths)
        ours = holder is not None and holder.engine == self.config.name
        return f"a {holder.what}" if holder is not None and ours else "systemd"

    def _lost(self, error: OSError) -> None:
        error.filename = error.filename or str(self.file)
        self._show(f"{self.config.name}: continues without a journal: {os_errors.sentence(error)}")

    def _changed(self, assessment: Assessment) -> None:
        if assessment.outcome != "unresponsive":
            self._unresponsive_t = None
        elif self._unresponsive_t is None:
            self._unresponsive_t = assessment.t
        parts = [assessment.outcome, f"phase {assessment.phase}"]
        if assessment.stopped_by:
            parts[0] = render.stopped(assessment.stopped_by)
        elif assessment.cause:
            parts.append(f"cause {assessment.cause}")
        if assessment.progress:
            parts.append(assessment.progress)
        self._show(f"{self.config.name}: {', '.join(parts)}")

    def _restart_if_due(self) -> None:
        """Restart an engine that no longer answers, where the inventory wants that: the stacks
        first, then systemd's restart, once a run. One that compiles answers when it is done."""
        wanted = self.config.readiness.restart_unresponsive and self.run.folder is not None
        since = self._unresponsive_t
        if not wanted or self._restarted or since is None:
            return
        if self._recorder.compiling:
            self._unresponsive_t = self.run.t()
            return
        if self.run.t() - since < self.config.limits.restart_unresponsive_s:
            return
        self._restarted = True
        folder = self.file.parent
        from sglangctl.watch import stacks

        release = self.paths.current(self.config.name)
        taken = stacks.take(folder, release, self.run.main_pid, self._collection.processes)
        step: dict[str, Any] = {"step": "stacks", "files": taken}
        self._recorder.record(self.run.t(), "step", **step)
        self._collection.stopping("sglangctl watch: restart_unresponsive")
        result = systemctl.call("restart", "--no-block", "--", self.config.unit)
        if not result.ok:
            self._show(f"{self.config.name}: restart failed: {result.stderr.strip()[:200]}")


def acceptance(
    config: EngineConfig, paths: Paths, where: Endpoint, tell: Callable[[str], None], kind: Kind
) -> dict[str, Any] | None:
    """The load of the acceptance, measured and compared, and the answers beside those of the engine
    that it replaced; None of a release that was accepted: a restart of it does not wait for that."""
    wanted = config.acceptance
    if wanted is None or kind.vectors:
        return None
    release = link_target(config.name, "current", paths)
    if release is not None and accepted.last(config, paths, release) is not None:
        return None
    before = former.of(config, paths)
    found = accepted.judge(config, wanted, paths, where, kind, before=before)
    if found.unkept:
        tell(f"the measured load is not kept: {found.unkept}")
    return found.event(wanted)


def _written(file: Path) -> float | None:
    """When a file was last written, seconds since 1970; None without it."""
    try:
        return file.stat().st_mtime
    except OSError:
        return None


def _beginning(log: Path, run: Run, seen_from_start: bool) -> int | None:
    """The byte where the log of a run begins, 0 for a file yet to come; None: where the tail is,
    which followed the file when the run began."""
    try:
        if seen_from_start:
            return mark_end(log, run.id)
        return beginning_of_run(log, run.id, time.time() - run.t())
    except OSError:
        return None if seen_from_start else 0
