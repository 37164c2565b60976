"""Readiness: wait until each engine serves, or ask each for its proof."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from pyinfra.api import deploy
from pyinfra.context import host, state

from roles.engine.operations import engine_facts
from roles.host.managed import change
from roles.inventory.model import EngineSpec
from roles.job import EngineJob, Job
from roles.readiness.operations import proved, reached, serving
from roles.readiness.subject import Subject
from roles.switch.deploy import decision_of
from roles.visit import Visit
from sglangctl.startup.summary import PROVEN


@deploy("Readiness")
def wait_until_serving(job: Job) -> None:
    """
    Follow each engine's start to its end; nothing to do where nothing changed and it serves.

    + job: the host's job
    """
    before = job.facts()
    for engine in job.each():
        subject = subject_of(engine.spec)
        settled = settled_of(engine, job, before)
        serving(
            name=f"{engine.name}: serves",
            subject=subject,
            settled=settled,
            sudo=job.sudo,
            then=("switch", engine.name, f"--commit={engine.release.digest}"),
        )
        reached(name=f"{engine.name}: clients reach it", subject=subject, settled=settled)


@deploy("Verify")
def verify(job: Visit) -> None:
    """
    Ask each engine for the proof that it serves, whatever was found before.

    + job: the host and its engines
    """
    proved(
        name="engines serve",
        subjects=[subject_of(engine) for engine in job.specs],
        sudo=job.sudo,
    )
    for engine in host.loop(job.specs):
        reached(
            name=f"{engine.name}: clients reach it",
            subject=subject_of(engine),
            settled=lambda: False,
        )


def subject_of(spec: EngineSpec) -> Subject:
    return Subject(
        name=spec.name,
        unit=spec.unit,
        served_name=spec.model.served_name,
        port=spec.port,
        limits=spec.limits,
        reachable_at=spec.reachable_at,
        api_key=spec.api_key,
    )


def settled_of(engine: EngineJob, job: Job, before: dict[str, Any] | None) -> Callable[[], bool]:
    """Whether the engine has proved that it serves, and nothing of it changes in this run.

    In the plan: the switch has no reason. While executing: the unit still is in the very run that
    it was in before (a switch, also one that is long over, has begun another).
    """

    def settled() -> bool:
        facts = job.facts()
        if facts is None or before is None:
            return False
        now, then = engine_facts(facts, engine.name), engine_facts(before, engine.name)
        if not proved_by(now, engine.spec.readiness.degraded == "commit"):
            return False
        if change(engine.config, facts["files"][engine.config.path]) is not None:
            return False  # what `ready` asks may be something else now
        if not state.is_executing:
            return not decision_of(engine)(facts).needed
        return invocation(now) == invocation(then)

    return settled


def proved_by(engine: Mapping[str, Any], degraded_will_do: bool) -> bool:
    """By the unit, and the watch's last word about this very run of it."""
    last = engine.get("last") or {}
    return (
        (engine.get("unit") or {}).get("ActiveState") == "active"
        and last.get("outcome") in (PROVEN if degraded_will_do else ("ready",))
        and bool(invocation(engine))
        and str(last.get("start")).endswith(f"-{invocation(engine)}")
    )


def invocation(engine: Mapping[str, Any]) -> str:
    return str((engine.get("unit") or {}).get("InvocationID") or "")
