"""The order of a fleet: the first host of the rollout alone, and the others once it is ready."""

from __future__ import annotations

from collections.abc import Callable
from typing import cast

from pyinfra.context import host

from roles.stages.compiled import bring_compiled, keep_compiled
from roles.stages.desired import DesiredHost
from roles.stages.readiness import wait_until_serving
from roles.stages.switch import switch_engines
from roles.switch.decision import decision_of
from roles.switch.rollout import first_is_ready

Stage = Callable[[DesiredHost], None]
switch, prove = cast("Stage", switch_engines), cast("Stage", wait_until_serving)
bring, harvest = cast("Stage", bring_compiled), cast("Stage", keep_compiled)
"""pyinfra's decorator does not say what it returns."""


def roll_out(desired: DesiredHost) -> None:
    """
    Switch the engines and follow them until they serve; with `rollout: {first: HOST}`, on that host
    before any other.

    pyinfra orders what hosts have in common, and nothing else: the operation between the two is every
    host's, the last one of the first host and the first one of the others.

    + desired: the host
    """
    first = host.data.get("sglang_first")
    if first == host.name:
        start(desired)
    if first is not None:
        first_is_ready(
            name=f"{first} is ready",
            first=first,
            decides=[decision_of(engine) for engine in desired.engines],
            request=desired.request,
        )
    if first != host.name:
        start(desired)


def start(desired: DesiredHost) -> None:
    """
    Switch a host's engines and follow them until they serve; what they compile is shared where the
    inventory says so.

    + desired: the host
    """
    bring(desired)
    switch(desired)
    prove(desired)
    harvest(desired)
