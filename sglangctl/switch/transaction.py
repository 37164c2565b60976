"""The switch: record what runs, stop it and free the GPUs, put the release live, start it, follow the
start to its outcome; then commit, or go back to what ran before.

Under the host's lock, and all that the running engine and its watch read is written inside of it.
state.json names the step before it is taken. Until the commit what is replaced stays enabled and
the new engine is not, so that a power cut boots the one from before.
"""

from __future__ import annotations

import shutil
import signal
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from types import FrameType
from typing import Callable

from sglangctl import free
from sglangctl.diagnosis.overrides import HELPS
from sglangctl.free import disabling
from sglangctl.free.model import Plan
from sglangctl.proc import as_user, memory
from sglangctl.startup.render import duration, explain
from sglangctl.state import compiled, ownership, release, slots
from sglangctl.state.config import (
    ConfigError,
    EngineConfig,
    Fallback,
    load_engine,
    load_host,
    located,
    siblings_of,
)
from sglangctl.state.files import link_atomic, no_room
from sglangctl.state.lock import locked
from sglangctl.state.paths import Paths
from sglangctl.state.release import State
from sglangctl.switch import (
    back,
    before,
    cutover,
    cutover_facts,
    gate,
    live,
    measuring,
    recorded_unit,
)
from sglangctl.switch import unit as switch_unit
from sglangctl.switch.configure import engine_of, put_config
from sglangctl.switch.ended import Cancelled, Stopped
from sglangctl.switch.gate import GATING
from sglangctl.switch.journal import Record, journal_of, now
from sglangctl.switch.outcome import Outcome, follow
from sglangctl.switch.present import COMMITTING, here, possible, with_known
from sglangctl.switch.takeover import Takeover, hand_over
from sglangctl.systemd import systemctl
from sglangctl.systemd.unit import UP, find
from sglangctl.util import os_errors, plain_files
from sglangctl.util.errors import Failed
from sglangctl.weights import page_cache

Say = Callable[[str], None]
Ask = Callable[[EngineConfig, str, Paths], list[str]]
"""Why a staged release could not start, by its own parser and imports; they take a minute."""
STEPS = FREEING, MOVING, STARTING, FOLLOWING, _ = (
    "freeing",
    "moving",
    "starting",
    "following",
    COMMITTING,
)
"""state.json has the step before it is taken. From `committing` on the new engine is the side that
counts. Before all of them is `gating`, where the new engine starts beside what serves."""
ALL_STEPS = (GATING, *STEPS)
UNCHANGED, UNTOUCHED = "nothing was changed. ", "refused, nothing is changed: "
"""What a refusal begins with; not so once a switch that was cut has been cleared away."""
WARM_SPARE_MIB = 8192
"""Of available memory that is left alone when the weights are read beforehand."""
WARM_S = 600.0
"""For that reading, at most: the rest the engine reads itself."""


@dataclass(frozen=True)
class Wanted:
    """A switch as it is asked for."""

    name: str
    to: str
    policy: str = "declared"
    reason: str = ""
    seen: str | None = None
    """`time` of the state.json that the caller decided by, `-` for none; None: not compared."""
    config: str | None = None
    """The text of engines/NAME.json that goes live with the release; None: it stays."""
    takes: Takeover = field(default_factory=Takeover)
    ask: Ask | None = None
    """Asked before anything is stopped, where no launch gate shows the same; None: the caller has."""


def detach(wanted: Wanted, ticket: str, paths: Paths) -> None:
    """`sglangctl switch` in the transient unit."""
    arguments = [wanted.name, f"--to={wanted.to}", f"--policy={wanted.policy}"]
    arguments.append(f"--reason={wanted.reason}")
    if wanted.seen is not None:
        arguments.append(f"--seen={wanted.seen}")
    arguments += [f"--was={wanted.takes.was}"] if wanted.takes.was else []
    arguments += [f"--gone={name}" for name in wanted.takes.gone]
    arguments += ["--unproven"] if wanted.ask else []
    journal = journal_of(wanted.name, ticket, paths)
    switch_unit.start(ticket, journal, wanted.config, arguments, paths)


def begin(wanted: Wanted, paths: Paths, record: Record) -> None:
    """Carry out a switch, under the host's lock."""
    name, config = wanted.name, wanted.config
    with locked(paths, name, title(name, wanted.to)), _ended_by_signals():
        if wanted.seen is not None:
            release.check_unchanged(name, wanted.seen, paths)
        _finish_commit(name, paths)
        engine = load_engine(name, paths) if config is None else engine_of(name, config, paths)
        reason, takes, ask = wanted.reason, wanted.takes, wanted.ask
        switch(engine, wanted.to, wanted.policy, reason, paths, record, config, takes, ask)


def resume(name: str, paths: Paths, record: Record) -> None:
    """Bring up the side that state.json names, of a switch that did not come to its end: what ran
    before it, until the commit; the new engine from then on, and where nothing ran before."""
    with locked(paths, name, f"switch of {name} (--resume)"), _ended_by_signals():
        state = release.read_state(name, paths)
        if state is None or state.phase != "switching" or state.to is None:
            raise Failed(f"no switch of {name} was interrupted: there is nothing to resume")
        config = state.config
        engine = load_engine(name, paths) if config is None else engine_of(name, config, paths)
        if _finish_commit(name, paths):
            record.say(f"release {state.to[:12]} had been proven: it is kept")
        elif engine.rollback and possible(state):
            back.go_back(engine, state, "the switch was interrupted", paths, record)
        else:
            to = state.wanted or state.to
            switch(engine, to, state.policy, state.reason or "", paths, record, config)


def at_boot(name: str, paths: Paths) -> str | None:
    """As `resume`, but waits for nothing; returns what was done, None where nothing was to do."""
    with locked(paths, name, f"switch of {name} (after a boot)"):
        kept = _finish_commit(name, paths)
        if kept is not None:
            live.reload()
            live.begin_start(load_engine(name, paths))
            return f"{name}: release {kept[:12]}, which had been proven, is kept"
        return back.at_boot(name, paths)


def title(name: str, to: str) -> str:
    return f"switch of {name} to release {to[:12]}"


def switch(
    engine: EngineConfig,
    to: str,
    policy: str,
    reason: str,
    paths: Paths,
    record: Record,
    config: str | None = None,
    takes: Takeover = Takeover(),  # noqa: B008 (frozen)
    ask: Ask | None = None,
) -> None:
    """The transaction. Failed when the new engine does not serve; it says what serves instead.
    Before the first thing it ends, nothing has changed.

    `config`: the text of engines/NAME.json that goes live with the release; None: it stays.
    `takes`: engines that the inventory no longer has, whose place it takes. `ask`: as in Wanted.
    """
    cut = release.read_state(engine.name, paths)
    if cut is None or cut.phase != "switching" or cut.gate is None:
        _begun(engine, to, policy, reason, paths, record, config, takes, ask)
        return
    back.leave_gate(engine, cut, paths, record.say)
    engine = replace(engine, unit=slots.live_unit(engine.name, paths))
    left = release.read_state(engine.name, paths)
    try:
        _begun(engine, to, policy, reason, paths, record, config, takes, ask)
    except (Failed, OSError) as failure:
        if left is None or release.read_state(engine.name, paths) != left:
            raise  # it began, and has said what serves
        _refused_after_cut(engine, left, failure, paths, record)


def _refused_after_cut(
    engine: EngineConfig, state: State, failure: Exception, paths: Paths, record: Record
) -> None:
    """What the switch that was cut had started is ended, and no other takes its place: bring up what ran
    before both. Always raises."""
    told_to_end = isinstance(failure, Stopped) or systemctl.going_down()
    if told_to_end or state.step == GATING or not back.is_down(engine, state):
        raise failure
    why = os_errors.describe(failure).removeprefix(UNCHANGED).replace(UNTOUCHED, "refused: ", 1)
    first, *more = why.splitlines() or ["it failed"]
    if engine.rollback and possible(state):
        said = back.go_back(engine, state, first, paths, record)
    else:
        said = (
            "the engine that an interrupted switch had started was ended: "
            f"`sglangctl switch {engine.name} --resume` starts it again"
        )
    raise Failed("\n".join([first, said, *more])) from None


def _begun(
    engine: EngineConfig,
    to: str,
    policy: str,
    reason: str,
    paths: Paths,
    record: Record,
    config: str | None,
    takes: Takeover,
    ask: Ask | None,
) -> None:
    if ownership.written_by_others(paths.units / engine.unit):
        raise Failed(
            f"nothing was changed. {paths.units / engine.unit} was not made by sglang-provision: "
            "give the engine another name, or move that file away"
        )
    release.check_whole(engine.name, to, paths)
    state_folder = paths.engine_state(engine.name)
    for folder in (paths.units, paths.engine_json(engine.name).parent, state_folder):
        if why := no_room(folder):
            raise Failed(
                f"nothing was changed. No file can be made in {folder}: {why}; make room or make it "
                "writable, and deploy again"
            )
    others = siblings_of(engine.name, paths)
    engine, siblings = takes.of(engine, others)
    plan = free.plan(engine, load_host(paths), siblings, policy=policy, stop=True)
    if plan.refused:
        raise Failed("nothing was changed. " + "\n".join(free.plan_lines(plan)), status=3)
    state = _recorded(engine, plan, record.say, paths)
    state = replace(state, to=to, policy=policy, reason=reason or None, config=config)
    venv = release.venv(engine.name, to, paths)
    shipped = release.shipped(engine.name, to, paths)
    chosen = cutover_facts.chosen(engine, plan, venv, shipped, paths)
    if chosen.refused(engine.cutover):
        raise Failed(f"nothing was changed. `cutover: gated` is not possible: {chosen.reason}")
    if chosen.gated:
        state = replace(state, gate=gate.made(engine, paths).document())
    record.say(str(chosen))
    if not chosen.gated and (wrong := _asked(engine, to, paths, ask, record.say)):
        raise Failed("nothing was changed. " + wrong)
    if engine.warm_page_cache == "auto" and plan.units_to_stop:
        _warm_page_cache(engine, record.say)
    ran = before.of(state, plan, engine.rollback)
    there = release.staged(engine.name, paths)
    fallbacks = tuple(
        one for one in engine.fallbacks if one.instead_of == to and one.release in there
    )
    for text in before.lines(ran, engine.name, to, [one.name for one in fallbacks]):
        record.say(text)
    for old in others:
        if old.name == takes.was:
            hand_over(old, engine, paths, record.say)
    try:
        try:
            _forward(engine, plan, state, paths, record, chosen.moves)
        except AtGate as crowded:
            if engine.cutover == cutover.GATED or crowded.cause not in cutover.CROWDED:
                raise
            record.say(f"beside what serves it has no room ({crowded.cause}): cutover: plain")
            back.leave_gate(engine, replace(state, step=GATING), paths, record.say)
            state = replace(state, gate=None)
            if wrong := _asked(engine, to, paths, ask, record.say):
                raise AtGate(wrong, False, None) from None
            _forward(located(engine, paths), plan, state, paths, record)
    except (Failed, OSError) as failure:
        engine = located(engine, paths)
        state, ended = _with_fallbacks(engine, plan, fallbacks, state, failure, paths, record)
        if isinstance(ended, AtGate):
            _untouched(engine, state, ended, paths, record)
        elif ended is not None:
            _failed(engine, state, ran, ended, paths, record)


def _asked(engine: EngineConfig, to: str, paths: Paths, ask: Ask | None, say: Say) -> str | None:
    """Why the staged release could not start; None: it could, or nobody wants to know."""
    if ask is None:
        return None
    say(f"{engine.name}: its parser and its imports")
    try:
        return "\n".join(ask(engine.with_release(to), to, paths)) or None
    except (Failed, OSError) as error:  # also where the switch is told to end
        return os_errors.describe(error)


def _warm_page_cache(engine: EngineConfig, say: Say) -> None:
    """Read the weights while the old engine still serves: the new one then loads them from memory."""
    folders = [engine.model, *([engine.drafter.path] if engine.drafter else [])]
    room = ((memory.room_mib() or 0) - WARM_SPARE_MIB) * memory.MIB
    if room <= 0:
        return
    try:
        done = page_cache.warm_as(engine.user, filter(None, folders), room, WARM_S, say)
    except (PermissionError, KeyError, as_user.NoAnswer) as error:
        say(f"weights are not read beforehand: {error}")
        return
    if done.total:
        why = f": {done.why}" if done.why else ""
        amounts = f"{page_cache.in_gb(done.read)} of {page_cache.in_gb(done.total)}"
        say(f"weights in the page cache: {amounts}{why}")


def _recorded(engine: EngineConfig, plan: Plan, say: Say, paths: Paths) -> State:
    """What runs now, so that it can be brought back. Failed where that cannot be told."""
    names = [*engine.replaces, *(step.unit for step in plan.units_to_stop)]
    wanted = [name for name in dict.fromkeys(names) if name != engine.unit]
    found = [one for unit in wanted if (one := recorded_unit.record(unit)) is not None]
    for one in found:
        say(
            f"recorded {one.unit}: {one.active_state}, {one.unit_file_state or 'no file'}"
            + (f", ports {', '.join(map(str, one.ports))}" if one.ports else "")
            + (f", serves {', '.join(one.models)}" if one.models else "")
        )
    stopped = tuple(one.unit for one in found if one.active_state in UP)
    present = replace(
        here(engine, plan, stopped, paths),
        time=now(),
        foreign=tuple(recorded_unit.as_document(one) for one in found),
        config_before=_usable(engine.name, paths),
        disable=tuple(step.unit for step in plan.units_to_stop if step.disable),
    )
    return with_known(engine.name, present, paths)


def _usable(name: str, paths: Paths) -> str | None:
    """The text of engines/NAME.json; None where it is damaged: nothing can be brought back with it."""
    try:
        text = plain_files.read_bytes(paths.engine_json(name)).decode("utf-8")
        engine_of(name, text, paths)
    except (OSError, UnicodeDecodeError, ConfigError):
        return None
    return text


def _forward(
    engine: EngineConfig,
    plan: Plan,
    state: State,
    paths: Paths,
    record: Record,
    moves: bool = False,
) -> None:
    """From what runs now to the committed release; `moves`: in a slot. Failed where that is not
    possible."""
    live.enable_resume()
    way = gate.Gate.of(state.gate)
    if way is not None:
        _step(engine, state, GATING, paths, record)
        plan = _at_the_gate(engine, way, plan, state, paths, record)
        engine = gate.in_old(engine, way)
    try:
        measuring.take(engine, plan, str(state.to), paths, record.say)
    except Cancelled as told:
        if systemctl.going_down():
            raise
        raise AtGate(str(told), False, None) from None
    _step(engine, state, FREEING, paths, record)
    freed = free.execute(_kept_enabled(plan), record.say, record.emit)
    if not freed.ok:
        raise Failed(freed.sentence, status=freed.status)
    live.cancel_start(engine)
    _bring_up(engine, state, paths, record, moves)


def _step(engine: EngineConfig, state: State, step: str, paths: Paths, record: Record) -> None:
    release.write_state(engine.name, replace(state, step=step), paths)
    record.emit("step", name="step", step=step)


def _bring_up(
    engine: EngineConfig, state: State, paths: Paths, record: Record, moves: bool = False
) -> None:
    """From free GPUs to the committed release; `moves`: in a slot. NotKept when it does not come to
    serve."""
    say, to = record.say, str(state.to)
    _step(engine, state, MOVING, paths, record)
    if state.config is not None:
        put_config(engine.name, state.config, paths)
    if moves:
        engine = live.move_to_slot(engine, slots.free_slot(engine.name, paths), to, paths)
    way = gate.Gate.of(state.gate)
    if way is not None:
        engine = gate.in_slot(engine, way)
        if way.waits and slots.has_own_unit(engine.name):
            say(f"{engine.unit} is started again: systemd has a unit of the engine's own name")
            live.end(engine)
            way = replace(way, port=0)
            state = replace(state, gate=way.document())
        gate.take_log(engine.name, paths)
    old = state.came_from
    live.put_live(engine, to, old, paths)
    live.restarts(engine, paths, allowed=False)
    say(f"release {to[:12]} is live" + (f" (before: {old[:12]})" if old else ""))
    _step(engine, state, STARTING, paths, record)
    unit = find(engine.unit)
    ran = unit.invocation_id if unit else ""
    if way is not None and way.waits:
        ran = ""  # this very run
        gate.let_in(engine, way)
        live.reload()
        live.watch_anew(engine)
        say(f"let {engine.unit} in at its gate")
    else:
        live.reload()
        live.begin_start(engine)
        say(f"started {engine.unit}")
    _step(engine, state, FOLLOWING, paths, record)
    outcome = follow(engine, paths, say, ran)
    record.emit("outcome", **outcome.document())
    if not _good(outcome, engine):
        answers = outcome.word in ("degraded", "unproven")
        raise NotKept("\n".join(_told(outcome, engine)), answers, outcome.cause)
    _step(engine, state, COMMITTING, paths, record)
    commit(engine.name, to, paths)
    say(f"{outcome.sentence}: release {to[:12]} is kept")


def _with_fallbacks(
    engine: EngineConfig,
    plan: Plan,
    fallbacks: Sequence[Fallback],
    state: State,
    failure: Exception,
    paths: Paths,
    record: Record,
) -> tuple[State, Exception | None]:
    """Try the inventory's overrides in their order, as long as one can help what failed last. Returns
    the state as it is then, and why nothing was kept; None: a fallback serves."""
    wanted, because, told = failure, None, []
    for one in fallbacks:
        cause = failure.cause if isinstance(failure, NotKept) and not failure.answers else None
        if cause is None or cause not in HELPS:
            break
        because = because or cause
        first = str(failure).splitlines()[0]
        record.say(f"trying fallback {one.name}: {first}; {HELPS[cause]}")
        known = {"name": one.name, "instead_of": one.instead_of, "cause": because}
        state = replace(state, to=one.release, fallback=known)
        try:
            if isinstance(failure, AtGate):
                back.leave_gate(engine, replace(state, step=GATING), paths, record.say)
                state = replace(state, gate=gate.made(engine, paths).document())
                _forward(engine.with_release(one.release), plan, state, paths, record)
            else:
                way = gate.Gate.of(state.gate)
                if way is not None:
                    engine = gate.in_slot(engine, way)
                    state = replace(state, gate=replace(way, port=0).document())
                back.end_new(engine, paths, record.say)
                _bring_up(engine.with_release(one.release), state, paths, record)
        except (Failed, OSError) as again:
            failure = again
            told.append(f"fallback {one.name}: {os_errors.describe(again).splitlines()[0]}")
            continue
        record.emit("step", name="fallback", fallback=one.name, cause=because)
        record.say(f"{engine.name} serves with fallback {one.name} because {because}")
        return state, None
    if told and isinstance(failure, NotKept):
        first, *more = str(wanted).splitlines()
        kind = AtGate if isinstance(failure, AtGate) else NotKept
        return state, kind("\n".join([first, *told, *more]), failure.answers, failure.cause)
    return state, failure


def _at_the_gate(
    engine: EngineConfig, way: gate.Gate, plan: Plan, state: State, paths: Paths, record: Record
) -> Plan:
    """Bring the new engine to its gate. Returns the plan of what is to be stopped, made anew; AtGate
    where it does not get there: nothing was stopped for it."""
    say, to = record.say, str(state.to)
    new = engine_of(engine.name, state.config, paths) if state.config else engine
    new = gate.in_slot(new.with_release(to), way)
    began = time.monotonic()
    try:
        if engine.unit != way.before:
            engine = live.move_to_slot(engine, way.before, state.came_from or to, paths)
        say(f"starting release {to[:12]} in {way.unit}, up to its gate; what serves goes on")
        gate.begin(new, way, to, paths)
        outcome = gate.wait(new, way, to, paths, say)
        if outcome is not None:
            record.emit("outcome", **outcome.document())
            raise NotKept("\n".join(_told(outcome, new)), False, outcome.cause)
        say(f"{way.unit} waits at its gate after {duration(time.monotonic() - began)}")
        room = engine.limits.memory_free_mib + cutover.GPU_MIB
        with_room = replace(engine, limits=replace(engine.limits, memory_free_mib=room))
        seen, policy = plan.situation, state.policy
        host, siblings = (seen.host, seen.siblings) if seen else (load_host(paths), ())
        anew = free.plan(with_room, host, siblings, policy=policy, stop=True, waiting=way.unit)
        if anew.refused:
            raise Failed("\n".join(free.plan_lines(anew)), status=3)
        known = {step.unit for step in plan.units_to_stop}
        if any(step.unit not in known for step in anew.units_to_stop):
            raise Failed("what runs on its GPUs has changed meanwhile: deploy again")
        return anew
    except Stopped:
        raise
    except (Failed, OSError) as failure:
        text = os_errors.describe(failure)
        if isinstance(failure, Cancelled) and systemctl.going_down():
            raise
        cause = failure.cause if isinstance(failure, NotKept) else None
        raise AtGate(
            text, False, cause, failure.status if isinstance(failure, Failed) else 1
        ) from None


def _kept_enabled(plan: Plan) -> Plan:
    """The same plan, without systemctl disable: that comes with the commit."""
    steps = tuple(replace(step, disable=False) for step in plan.units_to_stop)
    return replace(plan, units_to_stop=steps)


def _good(outcome: Outcome, engine: EngineConfig) -> bool:
    return outcome.word == "ready" or (
        outcome.word == "degraded" and engine.readiness.degraded != "fail"
    )


def _told(outcome: Outcome, engine: EngineConfig) -> list[str]:
    """Why the new engine is not kept: the deciding line first."""
    lines = [f"{engine.name}: {outcome.sentence}"]
    lines += [f"> {line}" for line in outcome.evidence]
    if outcome.cause is not None:
        lines += explain(engine.name, outcome.cause, outcome.evidence, engine.model)[1:]
    return lines


def _untouched(
    engine: EngineConfig, state: State, failure: AtGate, paths: Paths, record: Record
) -> None:
    """The new engine goes if it is at its gate; what serves was never stopped. Always raises."""
    first, *more = str(failure).splitlines() or ["it failed"]
    said = back.stay(engine, state, first, paths, record)
    raise Failed("\n".join([first, said, *more]), failure.status) from None


def _failed(
    engine: EngineConfig,
    state: State,
    ran: before.Before,
    failure: Exception,
    paths: Paths,
    record: Record,
) -> None:
    """Go back where something served before. Always raises: Failed says what serves now."""
    status = failure.status if isinstance(failure, Failed) else 1
    why = os_errors.describe(failure)
    first, *more = why.splitlines() or ["it failed"]
    way = gate.Gate.of(state.gate)
    if way is not None and slots.live_unit(engine.name, paths) == way.unit:
        engine = gate.in_slot(engine, way)
    elif way is not None and not (isinstance(failure, Cancelled) and systemctl.going_down()):
        live.end(gate.in_slot(engine, way))
    if isinstance(failure, Stopped):
        _settled(engine, state, f"{first}; nothing was started again", paths)
        raise failure
    if isinstance(failure, Cancelled) and systemctl.going_down():
        raise failure  # nothing can be started now: state.json tells the next boot
    if engine.rollback and possible(state):
        try:
            said = back.go_back(engine, state, first, paths, record)
        except (Failed, OSError) as worse:
            _settled(engine, state, f"{first}; {os_errors.describe(worse)}", paths)
            raise Failed(
                "\n".join([why, f"going back failed: {os_errors.describe(worse)}"]), status
            ) from None
        raise Failed("\n".join([first, said, *more]), status) from None
    if isinstance(failure, NotKept) and not failure.answers:
        # Before systemd may restart it again: one failure is enough.
        back.end_new(engine, paths, record.say)
    same = ran.release in (state.to, state.wanted)
    nothing = (
        f"nothing to go back to, {before.nothing(ran, str(ran.release if same else state.to))}"
        if engine.rollback
        else "`rollback: false`: what ran before stays down"
    )
    _settled(engine, state, f"{first}; {nothing}", paths)
    raise Failed("\n".join([first, nothing, _next_boot(engine, state), *more]), status) from None


def _next_boot(engine: EngineConfig, state: State) -> str:
    """What a boot starts, after a switch that ended with nothing that was proven."""
    shown = map(find, (engine.unit, *state.stopped))
    units = [one.name for one in shown if one is not None and one.enabled]
    return f"at the next boot: {', '.join(units) or 'neither it nor what it replaces'} starts"


def _settled(engine: EngineConfig, state: State, ended: str, paths: Paths) -> None:
    """The switch is over without a side that serves; the release stays live for a look at it."""
    live.restarts(engine, paths, allowed=True)
    way = gate.Gate.of(state.gate)
    if way is not None:
        gate.close(engine, way, paths)
    live.reload()
    live.disable_unproven(engine, str(state.to), paths)
    release.write_state(
        engine.name,
        replace(state, phase="failed", time=now(), step=None, ended=ended, config=None, gate=None),
        paths,
    )


def commit(name: str, digest: str, paths: Paths) -> None:
    """`digest` serves: it starts at boot from now on and what it replaced does not; it is known to
    be good, and releases that nothing names are let go of. Harmless when it was done before."""
    if release.link_target(name, "current", paths) != digest:
        raise Failed(f"{digest} is not the live release of {name}: deploy again")
    state = release.read_state(name, paths)
    if state is None:
        # It was lost, and what ran before with it.
        release.write_state(name, State(phase="live", to=digest, time=now()), paths)
    elif state.phase == "switching":
        engine = load_engine(name, paths)
        live.restarts(engine, paths, allowed=True)
        live.reload()
        live.enable(engine, paths)
        gate.keep_old_log(name, paths)
        for unit in state.disable:
            failed = disabling.disable(unit)
            if failed:
                raise Failed(failed)
        release.write_state(
            name,
            replace(state, phase="live", time=now(), step=None, ended=None, config=None, gate=None),
            paths,
        )
    elif state.phase in ("live", "back"):
        engine = load_engine(name, paths)
        live.put_unit(engine, digest, paths)  # somebody may have edited it since
        live.enable(engine, paths)  # or disabled it
    elif state.phase == "stopped":
        engine = load_engine(name, paths)
        found = find(engine.unit)
        if found is not None and found.active == "active":
            # Somebody has started it again: it is an engine like any other.
            live.enable(engine, paths)
            again = replace(state, phase="live", to=digest, time=now(), step=None)
            release.write_state(name, again, paths)
    link_atomic(paths.engine_state(name) / "known-good", f"releases/{digest}")
    # What is younger may be another deploy's, which comes to its switch only now.
    since = release.staged_at(name, digest, paths)
    release.prune(name, paths, since)
    for venv in release.unused_venvs(paths, before=since):
        shutil.rmtree(venv)
    compiled.forget_unused(name, paths)


def _finish_commit(name: str, paths: Paths) -> str | None:
    """Commit the release whose commit was interrupted; its digest, None where there is none."""
    state = release.read_state(name, paths)
    if state is None or state.phase != "switching" or state.step != COMMITTING:
        return None
    commit(name, str(state.to), paths)
    return state.to


class NotKept(Failed):
    """The new engine did not become ready, for a `cause` where that is known; `answers`: it serves
    all the same."""

    def __init__(self, text: str, answers: bool, cause: str | None) -> None:
        super().__init__(text)
        self.answers, self.cause = answers, cause


class AtGate(NotKept):
    """The switch ended before it stopped anything: the new engine did not come to its gate, or it was
    told to end while what serves was measured."""

    def __init__(self, text: str, answers: bool, cause: str | None, status: int = 1) -> None:
        super().__init__(text, answers, cause)
        self.status = status


@contextmanager
def _ended_by_signals() -> Iterator[None]:
    """SIGTERM and SIGUSR1 end a switch where it is, once: going back is not to be interrupted."""

    def end(number: int, frame: FrameType | None) -> None:
        for one in (signal.SIGTERM, signal.SIGUSR1):
            signal.signal(one, signal.SIG_IGN)
        if number == signal.SIGUSR1:
            raise Stopped("the switch was ended by sglangctl stop")
        raise Cancelled("the switch was told to end")

    kept = {number: signal.signal(number, end) for number in (signal.SIGTERM, signal.SIGUSR1)}
    try:
        yield
    finally:
        for number, handler in kept.items():
            signal.signal(number, handler)
