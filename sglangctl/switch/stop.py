"""Stop an engine, end what is left of it, and keep it down."""

from __future__ import annotations

import signal
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Callable

from sglangctl import free
from sglangctl.free import text
from sglangctl.free.model import FreeResult
from sglangctl.proc import pidfds
from sglangctl.state import lock, ownership, release
from sglangctl.state.config import EngineConfig, HostConfig, load_host, siblings_of
from sglangctl.state.paths import Paths
from sglangctl.state.slots import live_unit
from sglangctl.switch.journal import now
from sglangctl.switch.step import Say, Step, quiet
from sglangctl.systemd import systemctl
from sglangctl.systemd.unit import Unit, find
from sglangctl.systemd.unit_names import watch_unit
from sglangctl.util import os_errors
from sglangctl.util.errors import Failed
from sglangctl.util.heartbeat import heartbeat

UNKNOWN_S = 130.0
"""For the units of an engine whose configuration is not there."""


def end_switch(name: str, paths: Paths, say: Say, limit_s: float = 60.0) -> None:
    """End a switch of this engine that is under way, and have it start nothing again: whoever stops
    an engine wants it down. Another engine's is left alone: the lock then says who runs it."""
    held = lock.holder(paths)
    if held is None or held.engine != name or not held.what.startswith("switch of "):
        return
    target = pidfds.Target(pidfds.Identity(held.pid, held.start, 0))
    try:
        say(f"ending the {held.what} (pid {held.pid})")
        target.send(signal.SIGUSR1)
        pidfds.wait_gone([target], limit_s)
    finally:
        target.close()


def stop(engine: EngineConfig, paths: Paths, say: Say) -> None:
    """Raises Failed when something of the engine is still there."""
    siblings = siblings_of(engine.name, paths)
    for step in steps(engine, load_host(paths), siblings, paths):
        step.do(say)


def stop_by_name(name: str, paths: Paths, say: Say, limit_s: float = UNKNOWN_S) -> None:
    """Stop and disable the two units of an engine, of which nothing else need be known."""
    for step in unit_steps(name, paths, limit_s):
        step.do(say)


def unconfigured_steps(name: str, paths: Paths) -> list[Step]:
    """What a stop does of an engine whose configuration is gone. Failed where its unit is somebody
    else's: then nothing says that it is an engine of ours."""
    unit = live_unit(name, paths)
    found = find(unit)
    file = Path((found["FragmentPath"] if found else "") or paths.units / unit)
    if ownership.written_by_others(file):
        raise Failed(
            f"{file} was not made by sglang-provision, and no engine {name} is configured here: "
            f"nothing was stopped. To stop it all the same: systemctl stop {unit}",
            status=3,
        )
    return list(unit_steps(name, paths))


def steps(
    engine: EngineConfig, host: HostConfig, siblings: Sequence[EngineConfig], paths: Paths
) -> Iterator[Step]:
    """What a stop does, in its order: a plan reads the lines, a stop does them. Failed where it
    would be refused.

    Lazy: a stop does each step before the next one is looked for.
    """
    # `replaces` is about taking over; who only stops must not end another engine's unit.
    alone = replace(engine, replaces=())
    plan = free.plan(alone, host, siblings, policy="declared", stop=True)
    if plan.blind:
        raise Failed(text.refusal_sentence(plan), status=3)
    freed: list[FreeResult] = []
    # Others on the same GPUs are not in the way of a stop: then the units alone are stopped.
    if not plan.refused:
        yield Step(
            lambda: [] if plan.empty else free.plan_lines(plan),
            lambda say: freed.append(free.execute(plan, say)),
        )
    ended = () if plan.refused else tuple(step.unit for step in plan.units_to_stop)
    yield from unit_steps(engine.name, paths, engine.limits.stop_units_s, ended)
    yield quiet(lambda: stopped(engine.name, paths))

    def told(say: Say) -> None:
        for result in freed:
            if not result.ok:
                raise Failed(result.sentence, status=result.status)
        say(f"{engine.unit} is stopped and disabled")

    yield Step(tuple, told)


def unit_steps(
    name: str, paths: Paths, limit_s: float = UNKNOWN_S, ended: Sequence[str] = ()
) -> Iterator[Step]:
    """Of the two units of an engine; `ended`: those that a plan has named as stopped."""
    # The engine first: the watch writes down how it ended.
    units = live_unit(name, paths), watch_unit(name)
    for unit in units:
        told = [] if unit in ended else [unit]
        yield Step(
            partial(shown, "stop", told, runs, states),
            partial(call, ("stop", "--", unit), limit_s),
        )
    yield Step(
        partial(shown, "disable", units, lambda found: found.enabled, boots),
        partial(call, ("disable", "--quiet", "--", *units), limit_s),
    )
    # A stop by SIGKILL (SGLang's own way of ending) leaves the unit failed: this end was wanted.
    yield quiet(lambda: systemctl.call("reset-failed", "--", *units))
    # Nobody writes it any more: it would say for ever that the engine serves.
    yield Step(tuple, partial(without_metrics, paths.textfile(name)))


def runs(unit: Unit) -> bool:
    """Whether a stop has something to do with it; a failed unit becomes an inactive one."""
    return unit.active != "inactive" or unit.job


def shown(
    verb: str, names: Iterable[str], concerned: Callable[[Unit], bool], state: Callable[[Unit], str]
) -> list[str]:
    """The lines of a plan about those units that are concerned."""
    found = [unit for unit in map(find, names) if unit is not None and concerned(unit)]
    return [f"{verb} {one.name} ({state(one)})" for one in found]


def boots(unit: Unit) -> str:
    return unit["UnitFileState"] or "no unit file"


def states(unit: Unit) -> str:
    return f"{unit.active}, {boots(unit)}"


def call(arguments: Sequence[str], limit_s: float, say: Say) -> None:
    """systemctl; a unit that does not exist is as it should be."""
    with heartbeat(say, f"systemctl {' '.join(arguments)}", limit_s):
        result = systemctl.call(*arguments, timeout_s=limit_s)
    if not result.ok and "not loaded" not in result.stderr and "not exist" not in result.stderr:
        raise Failed(f"systemctl {' '.join(arguments)} failed: {result.stderr.strip()}")


def without_metrics(file: Path, say: Say) -> None:
    """A file that cannot be removed keeps no engine from its stop."""
    try:
        file.unlink(missing_ok=True)
    except OSError as error:
        say(os_errors.sentence(error))


def stopped(name: str, paths: Paths) -> None:
    """Write down that it was stopped on purpose."""
    state = release.read_state(name, paths)
    if state is not None:
        release.write_state(name, replace(state, phase="stopped", time=now(), config=None), paths)
