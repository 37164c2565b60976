"""The switch: from what runs now to the staged release; and the end of a plan."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from pyinfra.api import deploy
from pyinfra.context import host, state

from roles.remote.failing import contained, tell_plan
from roles.report import choice
from roles.stages.desired import DesiredHost
from roles.switch import gone
from roles.switch.choosing import choice_of
from roles.switch.decision import decision_of, watch_reasons_of
from roles.switch.drift import as_committed
from roles.switch.operations import configured, possible, switched


@contained
@deploy("Switch")
def switch_engines(desired: DesiredHost) -> None:
    """
    Put each engine's release live where it is not, and start it.

    + desired: the host
    """
    for engine in desired.each():
        wanted: Any = {
            "engine": engine,
            "decide": decision_of(engine),
            "request": desired.request,
        }
        watch = watch_reasons_of(engine, desired.managed)
        sudo = desired.sudo
        configured(name=f"{engine.name}: configuration", watch=watch, sudo=sudo, **wanted)
        as_committed(name=f"{engine.name}: drift", sudo=sudo, **wanted)
        possible(name=f"{engine.name}: in the way", **wanted)
        switched(name=f"{engine.name}: live release", sudo=sudo, **wanted)
    choose(desired)


@contained
@deploy("Gone")
def remove_gone(desired: DesiredHost) -> None:
    """
    Remove the engines that have left the inventory, where it says `prune: yes`, and those whose
    place another engine has taken (`was`); name the others.

    + desired: the host
    """
    for name in host.loop(desired.gone):
        gone.gone(
            name=f"{name}: not in the inventory",
            engine=name,
            stays=gone.stays_of(name, desired.engines, desired.spec.prune, host.name),
            **desired.asked,
        )


def choose(desired: DesiredHost) -> None:
    """Keep what the deploy would do to each engine, for the end of the plan."""
    facts = desired.facts()
    if facts is None or state.is_executing:
        return
    found = [choice_of(engine, desired.managed, facts, host.name) for engine in desired.engines]
    found += gone.choices(desired.gone, desired.engines, desired.spec.prune, facts, host.name)
    choice.CHOICES[host.name] = found
    if state.check_for_changes and not (choice.Plan.dry or choice.Plan.before_asking):
        choice.print_plan(host.name)
    for one in found:
        tell_plan(host=host.name, choice=asdict(one))
