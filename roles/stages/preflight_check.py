"""What can be known before anything is begun: all that would fail, at once."""

from __future__ import annotations

from pyinfra.context import host, state

from roles.engine.desired import DesiredEngine
from roles.remote.failing import contained, fail_host, say
from roles.remote.snapshot import JSON, RUNS
from roles.sgl_kernel import choice
from roles.sgl_kernel.operations import situation
from roles.stages.desired import DesiredHost
from roles.switch.blockers import findings
from roles.switch.decision import Decide, decision_of
from sglangctl.diagnosis.finding import FAIL, INFO, Finding
from sglangctl.preflight.catalog import OF_A_RUN, OF_THE_MODEL, finding, without_ignored
from sglangctl.preflight.text import sentence

NOTHING_TOUCHED = "nothing was changed"
SERVES_ON = "the running engine continues, but it could not start again"


@contained
def preflight(desired: DesiredHost) -> None:
    """Fail the host where its deploy cannot come to its end, and say what may go wrong.

    What is in the way of a switch fails it only without a plan (-y): with one the operations say
    what will fail, and whoever reads it decides. Otherwise packages would be installed, and a
    kernel built for an hour, before the switch says that the weights are not there.
    """
    facts = desired.facts()
    if facts is None:
        return
    target = state.inventory.get_host(host.name)
    ways, stays = [], []
    for engine in desired.engines:
        decide = decision_of(engine)
        way = in_the_way(facts, engine, decide)
        stay = [] if decide(facts).now else of_the_next_start(facts, engine)
        for one in [*way, *stay]:
            if one.level not in (FAIL, INFO):
                say(target, f"{engine.name}: {one.level}: {sentence(one)}", fg="yellow")
        ways += [(engine.name, one) for one in way if one.level == FAIL]
        stays += [f"{engine.name}: {sentence(one)}" for one in stay if one.level == FAIL]
    if state.check_for_changes or (
        not facts.get(RUNS) and all(one.id == "gpus-held" for _, one in ways)
    ):
        # What is told of held GPUs is a command of sglangctl, which may not be on this host yet:
        # the deploy brings it and what else is beside the running engine, and ends before the switch.
        ways = []
    if ways or stays:
        texts = [f"{name}: {sentence(one)}" for name, one in ways]
        fail_host("\n".join([*texts, *stays, NOTHING_TOUCHED if ways else SERVES_ON]))


def in_the_way(facts: JSON, engine: DesiredEngine, decide: Decide) -> list[Finding]:
    """Everything about one engine that is to be switched and that no step before the switch
    changes; its kernel also where it is not."""
    found = findings(facts, engine) if decide(facts).now else []
    found = [one for one in found if one.id not in OF_A_RUN]
    survey = (facts.get("kernels") or {}).get(engine.name)
    now = situation(engine.spec, survey)
    unknown_gpu = survey is not None and choice.architecture(engine.spec.kernel, survey) is None
    if unknown_gpu and choice.wanted(engine.spec.kernel, now.device) is None:
        found.append(finding("kernel-source", FAIL, f"kernel: {choice.decide(now).reason}"))
    return without_ignored(found, engine.spec.preflight.ignore)


def of_the_next_start(facts: JSON, engine: DesiredEngine) -> list[Finding]:
    """What is wrong with the model of an engine that is left as it is: it has its weights in
    memory, and would not come up again."""
    return [one for one in findings(facts, engine) if one.id in OF_THE_MODEL]
