"""Free an engine's GPUs: a plan that can be read first, steps with limits, and a proof."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from sglangctl.free.model import FreeResult, Plan
from sglangctl.free.text import plan_document, plan_lines
from sglangctl.holders.classes import POLICIES
from sglangctl.state.config import EngineConfig, HostConfig

__all__ = ["POLICIES", "FreeResult", "Plan", "execute", "plan", "plan_document", "plan_lines"]


def plan(
    engine: EngineConfig,
    host: HostConfig,
    siblings: Sequence[EngineConfig],
    *,
    policy: str = "declared",
    stop: bool = False,
    waiting: str | None = None,
) -> Plan:
    """What freeing `engine`'s GPUs would do now. Changes nothing, needs root to see everything.

    `siblings`: the other engines of the inventory. `stop`: end the engine itself as well. A plan
    with `refused` set would do nothing. `waiting`: the unit of an engine at its gate, which stays, with
    as much memory as `memory_free_mib` leaves it. KeyError for a policy that is not in POLICIES.
    """
    from sglangctl.free import gather, planning

    return planning.make(gather.situation(engine, host, siblings, waiting), policy, stop)


def execute(
    plan: Plan,
    say: Callable[[str], None] = print,
    emit: Callable[..., Any] | None = None,
) -> FreeResult:
    """Carry the plan out. Raises nothing for what the host does: the result tells.

    `say` gets one line a step; `emit(kind, **fields)` the journal's events of it (`step`,
    `holder`, `signal`).
    """
    from sglangctl.free import execution

    return execution.execute(plan, say, emit)
