"""Get an engine's GPUs back: a plan that can be read first, a ladder that ends, and a proof.

Policies: `declared` (default) may end only what the inventory replaces; `engines` also other
inference engines; `all` also anything else. Protected processes and other engines of the inventory
are never ended; the engine itself only with --stop. If anything that may not be ended is on the
GPUs, nothing at all is changed, and the line that would allow it is shown.

Exit status: 0 free (or nothing to do), 1 not free (the last line says why and what next), 2 no such
engine or no readable configuration, 3 refused
(nothing was changed). With --json: {"v": 1, "free": {"plan": {...}, "result": {...} or null}}.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence
from typing import Any

from sglangctl.free.model import FreeResult, Plan
from sglangctl.holders.classes import POLICIES
from sglangctl.state.config import EngineConfig, HostConfig

__all__ = ["POLICIES", "FreeResult", "Plan", "execute", "plan"]


def plan(
    engine: EngineConfig,
    host: HostConfig,
    siblings: Sequence[EngineConfig],
    *,
    policy: str = "declared",
    stop: bool = False,
) -> Plan:
    """What freeing `engine`'s GPUs would do now. Changes nothing, needs root to see everything.

    `siblings`: the other engines of the inventory. `stop`: end the engine itself as well. A plan
    with `refused` set would do nothing. KeyError for a policy that is not in POLICIES.
    """
    from sglangctl.free import gather, planning

    return planning.make(gather.situation(engine, host, siblings), policy, stop)


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


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("name", help="the engine's name")
    parser.add_argument("--dry-run", action="store_true", help="show the plan, change nothing")
    parser.add_argument(
        "--policy", choices=POLICIES, default="declared", help="what may be ended (see above)"
    )
    parser.add_argument("--stop", action="store_true", help="stop the engine itself as well")
    parser.add_argument("--json", action="store_true", help="one document at the end")


def run(args: argparse.Namespace) -> int:
    from sglangctl.commands import free

    return free.run(args)
