"""The switch: from what runs now to the staged release."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime

from pyinfra.api import deploy

from roles.engine.operations import changed_against_live, engine_facts
from roles.host.managed import change
from roles.host.snapshot import JSON
from roles.job import EngineJob, Job
from roles.preflight import hopeless
from roles.switch.decision import Decide, Decision, decide, watch_reasons
from roles.switch.operations import configured, possible, switched


@deploy("Switch")
def switch_engines(job: Job) -> None:
    """
    Put each engine's release live where it is not, and start it.

    + job: the host's job
    """
    decisions = {engine.name: decision_of(engine) for engine in job.engines}
    if hopeless(job, decisions):
        return
    for engine in job.each():
        decision = decisions[engine.name]
        configured(
            name=f"{engine.name}: configuration",
            job=engine,
            decide=decision,
            watch=watch_reasons_of(engine, job),
            request=job.request,
            sudo=job.sudo,
        )
        possible(
            name=f"{engine.name}: in the way", job=engine, decide=decision, request=job.request
        )
        switched(
            name=f"{engine.name}: live release",
            job=engine,
            decide=decision,
            request=job.request,
            sudo=job.sudo,
        )


def decision_of(engine: EngineJob) -> Decide:
    """From the probe's document to the decision about this engine."""

    def of(facts: JSON) -> Decision:
        files = [one.item.path.rsplit("/", 1)[1] for one in changed_against_live(engine, facts)]
        differs = change(engine.installed_unit, facts["files"][engine.installed_unit.path])
        lock = facts.get("lock") or {}
        return decide(
            engine_facts(facts, engine.name),
            engine.release.digest,
            files,
            differs is not None,
            under_way=lock.get("engine") == engine.name,
        )

    return of


def watch_reasons_of(engine: EngineJob, job: Job) -> Callable[[JSON], list[str]]:
    """From the probe's document to why this engine's watch has to be restarted."""
    wanted = [
        item
        for item in (*job.managed, engine.config)
        if item.path.endswith(("/sglang-watch@.service", f"/{engine.name}.json"))
    ]

    def of(facts: JSON) -> list[str]:
        about = engine_facts(facts, engine.name)
        live = (about.get("releases") or {}).get("current") is not None
        read = {}
        for item in wanted:
            fact = facts["files"][item.path]
            read[item.path.rsplit("/", 1)[1]] = (
                change(item, fact) is not None,
                fact.get("mtime"),
            )
        return watch_reasons(about.get("watch") or {}, live, read, host_time(facts))

    return of


def host_time(facts: JSON) -> float:
    """The host's clock at the probe, in Unix seconds (a second's grace for what it cut off)."""
    return datetime.fromisoformat(facts["time"].replace("Z", "+00:00")).timestamp() + 1
