"""The switch: from what runs now to the staged release."""

from __future__ import annotations

from pyinfra.api import deploy

from roles.remote.failing import contained
from roles.stages.desired import DesiredHost
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
        decision = decision_of(engine)
        configured(
            name=f"{engine.name}: configuration",
            engine=engine,
            decide=decision,
            watch=watch_reasons_of(engine, desired.managed),
            request=desired.request,
            sudo=desired.sudo,
        )
        as_committed(
            name=f"{engine.name}: drift",
            engine=engine,
            decide=decision,
            request=desired.request,
            sudo=desired.sudo,
        )
        possible(
            name=f"{engine.name}: in the way",
            engine=engine,
            decide=decision,
            request=desired.request,
        )
        switched(
            name=f"{engine.name}: live release",
            engine=engine,
            decide=decision,
            request=desired.request,
            sudo=desired.sudo,
        )
