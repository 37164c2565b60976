"""Readiness: wait until each engine serves, or ask each for its proof."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from importlib import import_module
from typing import Any, Protocol

from pyinfra.api import deploy
from pyinfra.context import state

from roles.readiness.operations import proved, reached, serving
from roles.readiness.subject import Subject
from roles.spec.model import EngineSpec
from roles.spec.render import Release
from sglangctl.story import SERVED


class EngineJob(Protocol):
    """What is used of roles.job.EngineJob."""

    @property
    def name(self) -> str: ...
    @property
    def spec(self) -> EngineSpec: ...
    @property
    def release(self) -> Release: ...


class Job(Protocol):
    """What is used of roles.job.Job."""

    @property
    def engines(self) -> Sequence[EngineJob]: ...
    @property
    def sudo(self) -> bool: ...
    def each(self) -> Iterator[EngineJob]: ...
    def facts(self) -> dict[str, Any] | None: ...


@deploy("Readiness")
def wait_until_serving(job: Job) -> None:
    """
    Follow each engine's start to its end; nothing to do where nothing changed and it serves.

    + job: the host's job
    """
    before = job.facts()
    for engine in job.each():
        subject = subject_of(engine)
        settled = settled_of(engine, job, before)
        serving(
            name=f"Readiness of {engine.name}",
            subject=subject,
            settled=settled,
            sudo=job.sudo,
            then=("switch", engine.name, f"--commit={engine.release.digest}"),
        )
        reached(name=f"Clients reach {engine.name}", subject=subject, settled=settled)


@deploy("Verify")
def verify(job: Job) -> None:
    """
    Ask each engine for the proof that it serves, whatever was found before.

    + job: the host's job
    """
    proved(
        name="Verify that the engines serve",
        subjects=[subject_of(engine) for engine in job.engines],
        sudo=job.sudo,
    )
    for engine in job.each():
        reached(
            name=f"Clients reach {engine.name}",
            subject=subject_of(engine),
            settled=lambda: False,
        )


def subject_of(engine: EngineJob) -> Subject:
    spec = engine.spec
    return Subject(
        name=spec.name,
        unit=spec.unit,
        served_name=spec.model.served_name,
        limits=spec.limits,
        reachable_at=spec.reachable_at,
        api_key=spec.api_key.reveal() if spec.api_key else None,
    )


def settled_of(engine: EngineJob, job: Job, before: Mapping[str, Any] | None) -> Callable[[], bool]:
    """Whether the engine serves and nothing of it changes in this run.

    In the plan: the switch has no reason. While executing: the unit still is in the very run that
    it was in before (a switch, also one that is long over, has begun another).
    """

    def settled() -> bool:
        facts = job.facts()
        if facts is None or before is None:
            return False
        now, then = of_engine(facts, engine.name), of_engine(before, engine.name)
        if not serves(now):
            return False
        if not state.is_executing:
            decide = import_module("roles.switch.deploy").decision_of(engine)
            return not decide(facts).needed
        return invocation(now) == invocation(then)

    return settled


def of_engine(facts: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    return (facts.get("engines") or {}).get(name) or {}


def serves(engine: Mapping[str, Any]) -> bool:
    """By the unit and the watch's last word about this very run of it."""
    last = engine.get("last") or {}
    return (
        (engine.get("unit") or {}).get("ActiveState") == "active"
        and last.get("outcome") in SERVED
        and bool(invocation(engine))
        and str(last.get("start")).endswith(f"-{invocation(engine)}")
    )


def invocation(engine: Mapping[str, Any]) -> str:
    return str((engine.get("unit") or {}).get("InvocationID") or "")
