"""Readiness: wait until each engine serves, or ask each for its proof."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from pyinfra.api import deploy
from pyinfra.context import host, state

from roles.engine.desired import DesiredEngine
from roles.host.managed import change
from roles.readiness.operations import proved, reached, serving
from roles.readiness.subject import subject_of
from roles.remote.failing import contained
from roles.remote.snapshot import engine_facts
from roles.stages.desired import DesiredHost
from roles.stages.existing import ExistingHost
from roles.switch.decision import decision_of, side_of
from roles.switch.proof import invocation, proved_by


@contained
@deploy("Readiness")
def wait_until_serving(desired: DesiredHost) -> None:
    """
    Follow each engine's start to its end; nothing to do where nothing changed and it serves.

    + desired: the host
    """
    before = desired.facts()
    for engine in desired.each():
        subject = subject_of(engine.spec)
        settled = settled_of(engine, desired, before)
        serving(
            name=f"{engine.name}: serves",
            subject=subject,
            settled=settled,
            sudo=desired.sudo,
            then=partial(commit, engine, desired),
        )
        reached(name=f"{engine.name}: clients reach it", subject=subject, settled=settled)


@contained
@deploy("Verify")
def verify(existing: ExistingHost) -> None:
    """
    Ask each engine for the proof that it serves, whatever was found before.

    + existing: the host and its engines
    """
    proved(
        name="engines serve",
        subjects=[subject_of(engine) for engine in existing.specs],
        sudo=existing.sudo,
    )
    for engine in host.loop(existing.specs):
        reached(
            name=f"{engine.name}: clients reach it",
            subject=subject_of(engine),
            settled=lambda: False,
        )


def commit(engine: DesiredEngine, desired: DesiredHost) -> Sequence[str]:
    """The call that keeps what serves: the engine's release, or its fallback's."""
    facts = desired.facts()
    side = engine if facts is None else side_of(engine, facts)
    return ("switch", engine.name, f"--commit={side.release.digest}")


def settled_of(
    engine: DesiredEngine, desired: DesiredHost, before: dict[str, Any] | None
) -> Callable[[], bool]:
    """Whether the engine has proved that it serves, and nothing of it changes in this run.

    In the plan: the switch has no reason. While executing: the unit still is in the very run that
    it was in before (a switch, also one that is long over, has begun another).
    """

    def settled() -> bool:
        facts = desired.facts()
        if facts is None or before is None:
            return False
        if decision_of(engine)(facts).held:
            return True  # what runs is another release than this run's
        now, then = engine_facts(facts, engine.name), engine_facts(before, engine.name)
        if not proved_by(now, engine.spec.readiness.degraded == "commit"):
            return False
        if change(engine.config, facts["files"][engine.config.path]) is not None:
            return False  # what `ready` asks may be something else now
        if not state.is_executing:
            return not decision_of(engine)(facts).needed
        return invocation(now) == invocation(then)

    return settled
