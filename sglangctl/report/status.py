"""The status of one engine, from systemd and its last start's journal."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from sglangctl.diagnosis.outcomes import PROVEN, SERVED
from sglangctl.engine import deleted_log
from sglangctl.startup import render
from sglangctl.startup.summary import Summary
from sglangctl.state import collectives, journal, lock, release, starts
from sglangctl.state.config import EngineConfig
from sglangctl.state.paths import Paths
from sglangctl.systemd import unit_failure
from sglangctl.systemd.unit import Unit, with_watch
from sglangctl.systemd.unit_names import watch_unit
from sglangctl.util.errors import Failed
from sglangctl.watch import before_start

VERSION = 1
SILENT_S = 150.0
"""While serving the watch writes once a minute; longer silence means that it no longer looks."""


@dataclass(frozen=True)
class EngineStatus:
    """One engine; None is unknown."""

    name: str
    unit: str
    active: str | None
    """systemd's ActiveState; None without systemd."""
    sub: str | None
    restarts: int | None
    watch: str | None
    """ActiveState of the watch's unit."""
    since: float | None
    """When it began to serve, or no longer answered; else when its unit came to its present state; in Unix seconds."""
    tries: int | None
    """How often systemd starts it before it gives up ..."""
    retry: str | None
    """... and how long it waits before each: `10s`."""
    port: int
    model: str
    """The name that it serves."""
    folder: str
    """The model's."""
    release: str | None
    """The live one."""
    start: str | None
    """The start's folder below starts/."""
    outcome: str | None
    phase: str | None = None
    cause: str | None = None
    progress: str | None = None
    eta_s: float | None = None
    eta_error_s: float | None = None
    elapsed_s: float | None = None
    """Since launch: now, or at its end."""
    serving_s: float | None = None
    """Since it served first, while it is up."""
    seen_s: float | None = None
    """Since the watch's last event."""
    served_after_s: float | None = None
    phases: dict[str, float] = field(default_factory=dict)
    gpus: list[dict[str, Any]] = field(default_factory=list)
    """As last read by the watch: once a minute while it serves."""
    gpus_age_s: float | None = None
    generate: dict[str, Any] | None = None
    generate_age_s: float | None = None
    """Since the last generation of ours."""
    evidence: list[str] = field(default_factory=list)
    stopped_by: str | None = None
    """Who asked for its end; then it has not failed, whatever `outcome` and systemd call it."""
    fallback: dict[str, str] | None = None
    """The fallback that serves instead of the wanted release: name, instead_of (its digest), cause."""
    collective: str | None = None
    """The newest result of `sglangctl collective`, as one line."""
    notes: list[str] = field(default_factory=list)
    """Warnings about the other fields."""
    exit: int = 2
    """This engine's share of the exit status."""


def look(engine: EngineConfig, paths: Paths, closer: bool = True) -> EngineStatus:
    """What can be known of one engine, from systemd and its last start's journal. `closer`: the notes
    say what is wrong with the weights or the port of a unit that never had a main process. That
    check reads files, for seconds."""
    unit, watch = with_watch(engine.name, engine.unit) or (None, None)
    basis: dict[str, Any] = {
        "name": engine.name,
        "unit": engine.unit,
        "active": unit.active if unit else None,
        "sub": unit.sub if unit else None,
        "restarts": unit.restarts if unit else None,
        "watch": watch.active if watch else None,
        "since": in_unix(unit.changed) if unit else None,
        "tries": unit.number("StartLimitBurst") if unit else None,
        "retry": unit["RestartUSec"] or None if unit else None,
        "port": engine.port,
        "model": engine.served_name,
        "folder": engine.model,
        "release": release.link_target(engine.name, "current", paths),
        "fallback": fallback(engine.name, paths),
        "collective": collective(engine.name, paths),
    }
    start = starts.to_tell_of(engine.name, unit, paths)
    if start is None:
        told = {"outcome": None, **without_journal(engine, unit, watch, paths, closer)}
        told["notes"] += interrupted(engine.name, paths)
        return EngineStatus(**basis, start=None, **told)
    file = paths.starts(engine.name) / start / starts.JOURNAL
    seen_s = max(0.0, time.time() - file.stat().st_mtime)
    told = from_journal(file, seen_s, down=unit is not None and unit.down)
    outcome = told["outcome"]
    if unit and (unit.down or unit.retried) and unit_failure.spawn_step(unit.exit_status):
        # The watch saw a process that never became the engine: systemd knows more.
        told["cause"], notes, status = None, reasons(engine, unit, paths, closer), 1
    elif unit and unit.down:
        ended = outcome in (*SERVED, "pending")
        notes = [f"the unit is {unit.active}: this is how it was before it ended"] if ended else []
        notes += reasons(engine, unit, paths, closer) if ended else []
        if told.get("stopped_by"):
            notes = after_stop(engine, unit)
        status = 1
    elif unit and unit.stopping:
        notes, status = [f"it is being stopped ({unit.active}/{unit.sub})"], 1
    else:
        notes = [] if outcome == "failed" else doubts(engine.name, watch, seen_s)
        status = 2 if notes else 0 if outcome in SERVED else 1
        notes += unproven(engine, told)
    if unit and unit.drop_ins:
        notes.append(f"drop-ins change {engine.unit}: {', '.join(unit.drop_ins)}")
    notes += interrupted(engine.name, paths)
    log = paths.engine_log(engine.name)
    if unit and unit.running and deleted_log.still_written(unit.main_pid, log):
        notes.append(deleted_log.sentence(log, engine.unit))
    began_s, judged_s = told.get("serving_s"), told.pop("judged_s", None)
    if outcome in ("unresponsive", "stalled") and not (unit and unit.down):
        began_s = judged_s
    if began_s is not None:
        basis["since"] = round(time.time() - began_s, 3)
    return EngineStatus(**basis, start=start, seen_s=seen_s, notes=notes, exit=status, **told)


def fallback(name: str, paths: Paths) -> dict[str, str] | None:
    """The fallback that the last switch ended with, while it is live; None also where nobody may
    read that."""
    try:
        state = release.read_state(name, paths)
    except Failed:
        return None
    live = release.link_target(name, "current", paths)
    return state.fallback if state and state.phase == "live" and state.to == live else None


def interrupted(name: str, paths: Paths) -> list[str]:
    """That its last switch did not come to an end: what runs now may be neither kept nor gone back from.
    Empty also where nobody may read that."""
    try:
        state = release.read_state(name, paths)
        if state is None or state.phase != "switching" or lock.is_held(paths):
            return []
    except (Failed, OSError):
        return []
    return [
        f"a switch to release {str(state.to)[:12]} was interrupted (step: {state.step}): deploy again, "
        f"or: sglangctl switch {name} --resume"
    ]


def collective(name: str, paths: Paths) -> str | None:
    """What is kept of its GPUs' all-reduces; None also where nobody may read that."""
    try:
        found = collectives.newest(name, paths)
    except OSError:
        return None
    return None if found is None else collectives.summary(found)


def in_unix(monotonic: float | None) -> float | None:
    """Unix seconds of a time on time.monotonic()."""
    if monotonic is None:
        return None
    return round(time.time() - time.monotonic() + monotonic, 3)


def after_stop(engine: EngineConfig, unit: Unit) -> list[str]:
    """What to know of a unit that was stopped because somebody wanted that."""
    again = f"to start it again: systemctl enable --now {engine.unit}"
    if unit.active != "failed":
        return [again]
    return [f"systemd calls it failed because SGLang ends itself by SIGKILL when stopped; {again}"]


def doubts(name: str, watch: Unit | None, seen_s: float) -> list[str]:
    """Why the journal's last verdict may be out of date."""
    ago = render.duration(seen_s)
    if watch and watch.active != "active":
        last = f"the watch is not running (its last event is {ago} old)"
        return [f"{last}: systemctl start {watch_unit(name)}"]
    if seen_s > SILENT_S:
        return [f"the watch has been silent for {ago}: systemctl status {watch_unit(name)}"]
    return []


def unproven(engine: EngineConfig, told: dict[str, Any]) -> list[str]:
    """A proof holds for what it was asked for; the inventory may ask for something else since."""
    asked = (told.get("generate") or {}).get("asked")
    if told["outcome"] not in PROVEN or asked in (None, engine.readiness.asked):
        return []
    return [
        "the last proof is for an older configuration: the watch repeats it soon; "
        f"now: sglangctl verify {engine.name}"
    ]


def without_journal(
    engine: EngineConfig, unit: Unit | None, watch: Unit | None, paths: Paths, closer: bool
) -> dict[str, Any]:
    """Notes and exit status of an engine of whose start there is no journal."""
    if unit is None or watch is None:
        return {"notes": ["there is no systemd here and no journal"], "exit": 2}
    found = reasons(engine, unit, paths, closer)
    if unit.down or unit.retried:
        # An outcome only where systemd knows of a failure: a unit that nobody started has none.
        again = f"; systemd starts it again ({render.restarted(unit.restarts)})"
        again = "" if unit.down else again
        if found:
            return {"outcome": "failed", "notes": [found[0] + again, *found[1:]], "exit": 1}
        return {"notes": [f"not running: systemctl start {engine.unit}"], "exit": 1}
    if unit.job and unit.active in ("inactive", "failed"):
        return {"notes": ["a start of it is queued: systemctl list-jobs"], "exit": 1}
    if unit.stopping:
        return {"notes": [f"it is being stopped ({unit.active}/{unit.sub})"], "exit": 1}
    anew = f"; a watch that is started anew begins one: systemctl restart {watch_unit(engine.name)}"
    return {
        "notes": [
            f"there is no journal of this start (the watch is {watch.active or 'unknown'})"
            + (anew if unit.active == "active" else ""),
            f"ask the engine itself: sglangctl verify {engine.name}",
        ],
        "exit": 2,
    }


def reasons(engine: EngineConfig, unit: Unit, paths: Paths, closer: bool) -> list[str]:
    """What systemd says of a failure, and what to do; empty when it says nothing."""
    if closer:
        found = before_start.why(engine, unit, paths)
    else:
        found = unit_failure.why(engine.unit, unit.result, unit.exit_status)
    return [found.sentence, f"next step: {found.next_step}"] if found else []


def from_journal(file: Path, seen_s: float, down: bool = False) -> dict[str, Any]:
    """The fields of EngineStatus that a journal gives: the watch's own verdict, and what has
    passed since. `down`: it has ended."""
    summary = read(file)
    if summary.view is None:
        return {"outcome": None}
    over = down or summary.view.outcome == "failed"
    now_t = summary.t + (0.0 if over else seen_s)
    summary.tick(now_t)
    view, served_after = summary.view, summary.served_after()
    up = view.outcome in (*SERVED, "unresponsive") and not down
    return {
        "outcome": view.outcome,
        "phase": view.phase,
        "cause": view.cause,
        "progress": view.progress,
        "eta_s": view.eta_s,
        "eta_error_s": view.eta_error_s,
        "elapsed_s": round(now_t, 3),
        "serving_s": round(now_t - served_after, 3) if up and served_after is not None else None,
        "served_after_s": served_after,
        "phases": summary.durations(),
        "gpus": summary.gpus,
        "gpus_age_s": round(now_t - summary.gpus_t, 3) if summary.gpus else None,
        "generate": of_answer(summary.generate),
        "generate_age_s": round(now_t - summary.generate["t"], 3) if summary.generate else None,
        "judged_s": round(now_t - view.t, 3),
        "evidence": list(view.evidence),
        "stopped_by": view.stopped_by,
    }


def read(file: Path) -> Summary:
    """What a journal says of its start, from its end: it may have 64 MiB."""
    summary = Summary()
    last = starts.last_verdict(file)
    # An older watch's verdicts do not say how long the phases took: when they came does.
    verdicts = starts.verdicts(file) if last is not None and "phases" not in last else [last]
    others = (starts.last_event(file, kind) for kind in ("gpu", "generate", ""))
    for event in (*verdicts, *others):
        if event is not None:
            summary.feed(event)
    return summary


def of_answer(event: journal.Event | None) -> dict[str, Any] | None:
    """The numbers of the last generation, without its text."""
    if event is None:
        return None
    keys = ("t", "status", "text_ok", "fault", "tokens", "tokens_per_s", "ttft_s", "accept_length")
    return {key: event.get(key) for key in (*keys, "asked", "warm")}
