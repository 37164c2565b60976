"""What can be known before anything is begun: all that would fail, at once."""

from __future__ import annotations

from pyinfra.context import state

from roles.engine.desired import DesiredEngine
from roles.remote.failing import fail_host
from roles.remote.snapshot import JSON, RUNS
from roles.sgl_kernel import choice
from roles.sgl_kernel.operations import situation
from roles.stages.desired import DesiredHost
from roles.switch.blockers import blockers, held
from roles.switch.decision import Decide, decision_of


def preflight(desired: DesiredHost) -> None:
    """Fail the host where its deploy cannot come to its end.

    Only without a plan (-y): with one the operations say what will fail, and whoever reads it
    decides. Otherwise packages would be installed, and a kernel built for an hour, before the
    switch says that the weights are not there.
    """
    facts = None if state.check_for_changes else desired.facts()
    if facts is None:
        return
    found = [
        f"{engine.name}: {text}"
        for engine in desired.engines
        for text in all_blockers(facts, engine, decision_of(engine))
    ]
    if not facts.get(RUNS) and set(found) <= refusals(facts, desired):
        # What is told then is a command of sglangctl, which is not on this host yet: the deploy
        # brings it and what else is beside the running engine, and ends before the switch.
        return
    if found:
        fail_host("\n".join([*found, "nothing was touched"]))


def refusals(facts: JSON, desired: DesiredHost) -> set[str]:
    """What is in the way of the engines because somebody else holds the GPUs."""
    return {
        f"{engine.name}: {text}"
        for engine in desired.engines
        if (text := held(facts, engine)) is not None
    }


def all_blockers(facts: JSON, engine: DesiredEngine, decide: Decide) -> list[str]:
    """Everything that is in the way of one engine and that no step before the switch changes."""
    found = blockers(facts, engine) if decide(facts).needed else []
    survey = (facts.get("kernels") or {}).get(engine.name)
    now = situation(engine.spec, survey)
    unknown_gpu = survey is not None and choice.architecture(engine.spec.kernel, survey) is None
    if unknown_gpu and choice.wanted(engine.spec.kernel, now.device) is None:
        found.append(f"kernel: {choice.decide(now).reason}")
    return found
