"""Going back: the side that served before a switch is brought up again, and proven.

That side is our own release that was live, or the units (and containers) of somebody else that the
switch stopped: the unit active, its ports owned by its cgroup, the same model ids, one completion.
"""

from __future__ import annotations

import time
from dataclasses import replace
from typing import Any, Callable

from sglangctl import free
from sglangctl.engine.http import Endpoint
from sglangctl.engine.kinds import CHATTING, COMPLETION, EMBEDDING
from sglangctl.proc import sockets
from sglangctl.proc.command import Result
from sglangctl.startup.render import duration
from sglangctl.state import release
from sglangctl.state.config import EngineConfig, load_engine, load_host, siblings_of
from sglangctl.state.paths import Paths
from sglangctl.state.release import State
from sglangctl.switch import gate, live, recorded_unit
from sglangctl.switch.configure import engine_of, put_config
from sglangctl.switch.gate import GATING
from sglangctl.switch.journal import Record, now
from sglangctl.switch.outcome import follow
from sglangctl.switch.present import own_ran, possible
from sglangctl.systemd import containers, systemctl
from sglangctl.systemd.unit import UP, find
from sglangctl.util.errors import Failed
from sglangctl.util.heartbeat import heartbeat

LOOK_S = 0.5
COMPLETION_S, TOKENS = 60.0, 8
"""For the one completion of an engine of somebody else."""


def go_back(engine: EngineConfig, state: State, why: str, paths: Paths, record: Record) -> str:
    """End what the switch started and bring up what ran before it. Returns a sentence about what
    serves now; Failed when that does not serve either.

    Called again after an interruption, it goes on: each step looks at what is there.
    """
    say = record.say
    if state.gate is not None and state.step == GATING:
        return stay(engine, state, why, paths, record)
    say(f"going back: {why}")
    _step(engine, state, "going back", why, paths)
    way = gate.Gate.of(state.gate)
    if way is not None:
        live.end(gate.in_slot(engine, way))
        engine = gate.in_old(engine, way)
    end_new(engine, paths, say)
    live.restarts(engine, paths, allowed=True)
    before = _restored(engine, state, paths)
    serving = [_own(before, state, paths, say)] if own_ran(state) else []
    others = _others(engine, state, say)
    record.emit("step", name="back", others=others)
    serving += others
    said = ", ".join(serving) + " again"
    release.write_state(
        engine.name,
        replace(
            state,
            phase="back",
            time=now(),
            step=None,
            ended=f"{why}; {said}",
            config=None,
            gate=None,
        ),
        paths,
    )
    say(said)
    return said


def stay(engine: EngineConfig, state: State, why: str, paths: Paths, record: Record) -> str:
    """End the new engine, which was at its gate or on the way there. Returns a sentence about what
    serves: it was never stopped."""
    record.say(f"what serves goes on: {why}")
    leave_gate(engine, replace(state, step=GATING), paths, record.say)
    others = [*state.stopped, *map(_called, state.containers)]
    own = [f"release {str(state.came_from)[:12]} of {engine.name}"] if state.was_running else []
    said = f"nothing was stopped for it: {', '.join([*own, *others]) or 'what runs'} goes on"
    record.emit("step", name="back", others=[f"{one} serves" for one in others])
    ended = replace(
        state, phase="back", time=now(), step=None, ended=f"{why}; {said}", config=None, gate=None
    )
    release.write_state(engine.name, ended, paths)
    record.say(said)
    return said


def leave_gate(
    engine: EngineConfig, state: State, paths: Paths, say: Callable[[str], None]
) -> None:
    """End the new engine of a switch that was cut, and put back what it has moved; nothing is
    started."""
    way = gate.Gate.of(state.gate)
    if way is None:
        return
    live.end(gate.in_slot(engine, way))
    if state.step == GATING:
        if not state.came_from:
            live.take_away(engine, paths)
        gate.close(engine, way, paths)
    else:
        _restored(engine, state, paths)
    release.write_state(engine.name, replace(state, gate=None), paths)


def is_down(engine: EngineConfig, state: State) -> bool:
    """Whether something of what ran before a switch that was cut does not run now, or nothing ran."""
    units = [*([engine.unit] if own_ran(state) else []), *state.stopped]
    up = [found is not None and found.active in UP for found in map(find, units)]
    return not all(up) or not units


def at_boot(name: str, paths: Paths) -> str | None:
    """After a power cut in the middle of a switch: put back what was live before it, and queue its
    start; nothing is waited for. Returns what was done, None where no switch was interrupted."""
    state = release.read_state(name, paths)
    if state is None or state.phase != "switching" or state.to is None:
        return None
    engine = engine_of(name, state.config, paths) if state.config else load_engine(name, paths)
    way = gate.Gate.of(state.gate)
    if not (engine.rollback and possible(state)):
        why = "nothing ran before it" if engine.rollback else "`rollback: false` is set"
        ended = f"a reboot interrupted the switch, and {why}: deploy again"
        if live.disable_unproven(engine, state.to, paths):
            live.cancel_start(engine)  # this boot's own
        elif state.came_from not in (None, state.to):
            _restored(
                engine, state, paths
            )  # cut before the link moved: its unit may be the new one
        if way is not None:
            gate.close(engine, way, paths)
        failed = replace(state, phase="failed", step=None, ended=ended, gate=None)
        release.write_state(name, failed, paths)
        return f"{name}: {ended}"
    if way is not None:
        live.cancel_start(gate.in_slot(engine, way))  # this boot's own
    before = _restored(engine, state, paths)
    units = [before.unit] if own_ran(state) else []
    units += state.stopped
    for unit in units:
        _started(unit, systemctl.call("start", "--no-block", "--", unit, timeout_s=30))
    for box in state.containers:
        _started(_called(box), containers.start_later(box["command"], box["id"]))
    sides = ", ".join([*units, *map(_called, state.containers)])
    ended = f"a reboot interrupted the switch; {sides} was started again: deploy again"
    release.write_state(
        name,
        replace(state, phase="back", time=now(), step=None, ended=ended, config=None, gate=None),
        paths,
    )
    return f"{name}: {ended}"


def _restored(engine: EngineConfig, state: State, paths: Paths) -> EngineConfig:
    """Configuration, unit and link as they were; returns the engine as it was."""
    way = gate.Gate.of(state.gate)
    before = engine
    if state.config_before is not None:
        put_config(engine.name, state.config_before, paths)
        before = engine_of(engine.name, state.config_before, paths)
    if way is not None:
        before = gate.in_old(before, way)
    if state.came_from:
        live.put_live(before, state.came_from, None, paths)
    else:
        live.take_away(engine, paths)
    if way is not None:
        gate.close(engine, way, paths)
    live.reload()
    return before


def _step(engine: EngineConfig, state: State, step: str, why: str, paths: Paths) -> None:
    release.write_state(engine.name, replace(state, step=step, ended=why), paths)


def end_new(engine: EngineConfig, paths: Paths, say: Callable[[str], None]) -> None:
    """Stop the new engine, and what is left of it."""
    siblings = siblings_of(engine.name, paths)
    plan = free.plan(
        replace(engine, replaces=()), load_host(paths), siblings, policy="declared", stop=True
    )
    if plan.refused:
        # Somebody else is on the GPUs now. The new engine's own unit is stopped all the same.
        live.stop(engine)
        return
    freed = free.execute(plan, say)
    if not freed.ok:
        say(f"the new engine is not gone: {freed.sentence}")
    live.cancel_start(engine)


def _own(engine: EngineConfig, state: State, paths: Paths, say: Callable[[str], None]) -> str:
    """Start our own previous release and follow it to its proof."""
    digest = str(state.came_from)[:12]
    unit = find(engine.unit)
    live.begin_start(engine)
    say(f"started {engine.unit} with release {digest}, as before the switch")
    outcome = follow(engine, paths, say, unit.invocation_id if unit else "")
    if outcome.proven:
        return f"release {digest} of {engine.name} serves"
    raise Failed(
        f"release {digest} of {engine.name}, which ran before, does not serve either: "
        f"{outcome.sentence}; see: sglangctl status {engine.name}"
    )


def _others(engine: EngineConfig, state: State, say: Callable[[str], None]) -> list[str]:
    """Start what others ran, and wait until it serves as it was recorded."""
    units = [one for one in state.foreign if one["unit"] in state.stopped]
    for one in units:
        _started(
            one["unit"], systemctl.call("start", "--no-block", "--", one["unit"], timeout_s=60)
        )
        say(f"started {one['unit']}, as before the switch")
    for box in state.containers:
        _started(_called(box), containers.start(box["command"], box["id"], 120))
        say(f"started {_called(box)}, as before the switch")
    for one in units:
        with heartbeat(say, f"{one['unit']} to serve again", engine.limits.rollback_s):
            _wait_for(one, engine.limits.rollback_s)
    runs = [f"{_called(box)} runs" for box in state.containers]
    return [f"{one['unit']} serves" for one in units] + runs


def _started(what: str, result: Result) -> None:
    """Failed where it was not."""
    if not result.ok:
        raise Failed(f"{what} cannot be started: {result.stderr.strip()}")


def _called(box: dict[str, Any]) -> str:
    return f"container {box['name']}"


def _wait_for(one: dict[str, Any], limit_s: float) -> None:
    """Until the unit is as it was recorded; Failed with what is missing."""
    end = time.monotonic() + limit_s
    while True:
        missing = missing_of(one)
        if missing is None:
            return
        unit = find(one["unit"])
        failed = unit is not None and unit.active == "failed" and unit.down
        if failed or time.monotonic() >= end:
            waited = "" if failed else f" within {duration(limit_s)}"
            raise Failed(
                f"{one['unit']}, which ran before, does not serve again{waited}: {missing}; "
                f"see: systemctl status {one['unit']}; journalctl -u {one['unit']} -n 50"
            )
        time.sleep(LOOK_S)


def missing_of(one: dict[str, Any]) -> str | None:
    """What a recorded unit lacks of what it was; None: it serves as before."""
    unit = find(one["unit"])
    if unit is None or unit.active != "active":
        return f"it is {unit.active if unit else 'unknown to systemd'}"
    members = set(unit.pids())
    for port in one["ports"]:
        if not members.intersection(sockets.owners(port)):
            return f"it does not listen on port {port}"
    models = one["models"]
    if models is None:
        return None  # it answered to nobody before, or wanted a key
    ports, answered = recorded_unit.serves(one["ports"])
    if answered is None:
        return "it does not answer /v1/models"
    if set(answered) != set(models):
        return f"it serves {', '.join(answered) or 'nothing'}, not {', '.join(models)}"
    return _silent(Endpoint("127.0.0.1", ports[0]), models[0]) if models else None


def _silent(where: Endpoint, model: str) -> str | None:
    """Why it answers nothing; None: it answers. What it is is not known: a base model and one of
    embeddings refuse a chat."""
    faults = []
    for kind in (CHATTING, COMPLETION, EMBEDDING):
        said = kind.send(where, kind.request(model, "Say hello.", TOKENS), COMPLETION_S)
        if said.status == 200:
            return None
        faults.append(said.fault)
        if said.status is None or not 400 <= said.status < 500:
            break
    return f"it answers no completion: {faults[0]}"
