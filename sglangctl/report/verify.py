"""Whether an engine serves, by looking and by a generation of our own."""

from __future__ import annotations

import sys
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

from sglangctl.diagnosis.outcomes import SERVED
from sglangctl.diagnosis.readiness import Check, Decision, Expected, decide
from sglangctl.engine import accepted, processes, readiness_facts
from sglangctl.engine.http import endpoint
from sglangctl.gpu import gpus
from sglangctl.preflight import fit
from sglangctl.proc import cgroup
from sglangctl.startup import render
from sglangctl.startup.warm import findings
from sglangctl.state import starts
from sglangctl.state.config import EngineConfig
from sglangctl.state.paths import Paths
from sglangctl.systemd.unit import Unit, find
from sglangctl.systemd.unit_failure import spawn_step
from sglangctl.util.values import rounded
from sglangctl.watch.before_start import why


@dataclass(frozen=True)
class Report:
    """`sglangctl verify --json`, under "verify". Unknown is null."""

    name: str
    outcome: str | None
    """ready or degraded; else what the watch last said of the engine, if it is not up."""
    cause: str | None
    sentence: str
    """The answer in one sentence."""
    status: int
    """The exit status: 0, 1 or 2."""
    checks: tuple[Check, ...] = ()
    text: str | None = None
    tokens: int | None = None
    tokens_per_s: float | None = None
    ttft_s: float | None = None
    accept_length: float | None = None
    stopped_by: str | None = None
    """Who asked for the end of an engine that does not run."""
    memory: dict[str, Any] | None = None
    """Of each GPU: `taken`, what the engine says, and `estimated`, what the preflight expects, or
    null; both {weights_gib, cache_gib, graphs_gib, tokens}."""
    history: list[dict[str, Any]] = field(default_factory=list)
    """Loads that were accepted, oldest first (engine/accepted.py)."""


def verify(
    config: EngineConfig, paths: Paths, pid: int | None = None, quiet: bool = True
) -> Report:
    """Look and ask; PermissionError when this user may not read the engine's key."""
    if pid is None:
        unit = find(config.unit)
        if unit is None:
            return could_not_check(
                config.name,
                f"there is no unit {config.unit} to look at: deploy first, or name the engine's "
                "main process with --pid",
            )
        if not unit.main_pid:
            return not_running(config, paths, unit)
        pid, folder, walked = unit.main_pid, unit.folder, paths_walked(config, paths, unit)
    else:
        folder, walked = None, {}
    members = partial(cgroup.pids_in, folder) if folder else partial(processes.in_group_of, pid)
    where, pids = endpoint(config, paths, members), members()
    found = readiness_facts.gather(config, where, pid, pids, say=lambda text: _say(text, quiet))
    facts = replace(found.facts, **walked)
    return judged(config, paths, found, decide(Expected.of(config), facts))


def paths_walked(config: EngineConfig, paths: Paths, unit: Unit) -> dict[str, Any]:
    """What the watch found on the users' paths in this run, as fields of Facts; empty where it has
    walked none. They are not walked again: others use the engine by now."""
    start = starts.of_unit(config.name, unit, paths)
    if start is None:
        return {}
    try:
        event = starts.last_event(paths.starts(config.name) / start / starts.JOURNAL, "generate")
    except OSError:
        return {}
    return findings(event) if event is not None else {}


def judged(
    config: EngineConfig, paths: Paths, found: readiness_facts.Proof, decision: Decision
) -> Report:
    """The report on an engine whose main process could be looked at."""
    outcome, cause = decision.outcome, None
    first = decision.first
    if decision.outcome == "ready":
        status, sentence = 0, f"{config.name} is ready"
    elif decision.outcome == "degraded":
        status = 1 if config.readiness.degraded == "fail" else 0
        worst = next((check for check in decision.checks if check.passed is False), None)
        reason = f"{worst.name}: {worst.detail}" if worst else "see the checks"
        sentence = f"{config.name} is degraded; {reason}"
    elif decision.failed:
        status = 1
        outcome, cause, phase, _ = last_word(config, paths)
        sentence = f"{config.name} is not ready: {first.detail if first else ''}"
        if outcome == "pending":
            sentence += f" (it is still starting: {phase})"
        elif outcome:
            sentence += f" (the watch says: {', '.join(filter(None, (outcome, cause)))})"
    else:
        status = 2
        outcome = None
        sentence = f"could not check {config.name}: {first.detail if first else ''}"
    generation = found.generation
    return Report(
        name=config.name,
        outcome=outcome,
        cause=cause,
        sentence=sentence,
        status=status,
        checks=decision.checks,
        text=generation.text[:500] if generation else None,
        tokens=generation.tokens if generation else None,
        tokens_per_s=rounded(generation.tokens_per_s) if generation else None,
        ttft_s=rounded(generation.ttft_s) if generation else None,
        accept_length=rounded(found.acceptance.length) if found.acceptance else None,
        memory=_memory(config, paths, found.memory),
        history=accepted.history(config.name, paths),
    )


def _memory(
    config: EngineConfig, paths: Paths, taken: dict[str, Any] | None
) -> dict[str, Any] | None:
    if taken is None:
        return None
    expected = fit.expected(config, paths, gpus.sample() or ())
    return {"taken": taken, "estimated": expected.to_json() if expected else None}


def not_running(config: EngineConfig, paths: Paths, unit: Unit) -> Report:
    """The report on an engine without a main process."""
    outcome, cause, _, stopped_by = last_word(config, paths)
    sentence = f"{config.name} does not run ({config.unit} is {unit.active}/{unit.sub})"
    found = why(config, unit, paths)
    if stopped_by:
        sentence += f": it was {render.stopped(stopped_by)}"
    elif cause and spawn_step(unit.exit_status) is None:
        sentence += f": {outcome}, {cause}"
    elif found is not None:
        sentence += f": {found.sentence}; {found.next_step}"
    sentence += f"; see: sglangctl status {config.name}"
    return Report(config.name, outcome, cause, sentence, 1, stopped_by=stopped_by)


def could_not_check(name: str, sentence: str) -> Report:
    return Report(name, None, None, sentence, 2)


def last_word(config: EngineConfig, paths: Paths) -> tuple[str | None, ...]:
    """Outcome, cause, phase and who stopped it, of the watch's last verdict, unless that says
    that it is up."""
    try:
        event = starts.last_verdict(paths.latest_journal(config.name))
    except OSError:
        return None, None, None, None
    outcome = starts.outcome_of(event)
    if event is None or outcome in ("-", *SERVED):
        return None, None, None, None
    found = (event.get(key) for key in ("cause", "phase", "stopped_by"))
    return (outcome, *(value if isinstance(value, str) else None for value in found))


def _say(text: str, quiet: bool) -> None:
    if not quiet and sys.stderr.isatty():
        print(f"  {text} ...", file=sys.stderr, flush=True)
