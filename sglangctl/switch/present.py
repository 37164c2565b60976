"""What a switch would end and could go back to: what runs now, with what the switches before it have
recorded. Read-only. In a file of its own for the probe, which needs nothing else of a switch."""

from __future__ import annotations

from dataclasses import replace

from sglangctl.free.model import Plan
from sglangctl.state import release
from sglangctl.state.config import EngineConfig
from sglangctl.state.paths import Paths
from sglangctl.state.release import State
from sglangctl.switch import before
from sglangctl.systemd.unit import UP, find

COMMITTING = "committing"
"""The step of a switch from which on the new engine is the side that counts."""


def would_go_back_to(engine: EngineConfig, plan: Plan, paths: Paths) -> before.Before:
    """What a switch with this plan would go back to, for a plan. Read-only."""
    units = [step for step in plan.units_to_stop if step.unit != engine.unit]
    stopped = tuple(step.unit for step in units if step.active_state in UP)
    state = with_known(engine.name, here(engine, plan, stopped, paths), paths)
    return before.of(state, plan, engine.rollback)


def here(engine: EngineConfig, plan: Plan, stopped: tuple[str, ...], paths: Paths) -> State:
    """What a switch with this plan would end now."""
    seen = plan.situation.units if plan.situation else None
    unit = seen.get(engine.unit) if seen is not None else find(engine.unit)
    return State(
        phase="switching",
        came_from=release.link_target(engine.name, "current", paths),
        was_running=unit is not None and unit.active in UP,
        stopped=stopped,
        containers=tuple(
            {"id": box.id, "name": box.name, "command": box.command}
            for box in plan.containers_to_stop
        ),
    )


def with_known(name: str, state: State, paths: Paths) -> State:
    """A second switch must not forget what the ones before it replaced. Where they did not come to
    an end, or ended with nothing that serves, what ran before them is what to go back to."""
    known = release.read_state(name, paths)
    if known is None:
        return state
    kept = [one for one in known.foreign if one["unit"] not in state.stopped]
    names = {one["unit"] for one in kept}
    known_units = (*kept, *(one for one in state.foreign if one["unit"] not in names))
    idle = not possible(state)
    state = replace(state, foreign=known_units)
    cut = known.phase == "switching" and known.step != COMMITTING
    if not (cut or (known.phase == "failed" and idle)):
        return state
    return replace(
        state,
        came_from=known.came_from,
        config_before=known.config_before,
        was_running=known.was_running,
        stopped=tuple(dict.fromkeys((*known.stopped, *state.stopped))),
        disable=tuple(dict.fromkeys((*known.disable, *state.disable))),
        containers=(
            *known.containers,
            *(box for box in state.containers if box not in known.containers),
        ),
    )


def possible(state: State) -> bool:
    """Whether something else served before, which can be brought back."""
    return own_ran(state) or bool(state.stopped) or bool(state.containers)


def own_ran(state: State) -> bool:
    """Whether another release of the engine itself did."""
    return state.was_running and state.came_from not in (None, state.to, state.wanted)
