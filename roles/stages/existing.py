"""A host on which nothing is prepared: its engines are stopped, removed or asked.

No more of the inventory is needed than that says. Whoever stops an engine at night has the api key
of none, and what the inventory wants of an engine may be wrong or half written.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from pyinfra.context import host, state

from roles.inventory.errors import Need
from roles.inventory.model import EngineSpec, HostSpec
from roles.monitoring.operations import asked_for
from roles.monitoring.targets import Monitoring
from roles.remote.failing import contained, fail_host, say
from roles.remote.snapshot import snapshot
from roles.stages.fitness import NO_ENGINE, host_is_fit, inventory_is_right
from sglangctl.state.paths import checked_name
from sglangctl.util.errors import Unusable

NEEDS = {
    "stop": Need.HOST,
    "rollback": Need.HOST,
    "remove": Need.HOST,
    "verify": Need.ENGINES,
    "collective": Need.ENGINES,
    "monitoring": Need.ENGINES,
}
"""Deploy -> what it needs of the inventory."""


@dataclass(frozen=True)
class ExistingHost:
    """What such a deploy works on."""

    deploy: str
    names: tuple[str, ...]
    """Of the host's engines."""
    specs: tuple[EngineSpec, ...] = ()
    """The engines, where the deploy needs what they are."""
    sudo: bool = False
    """As in DesiredHost."""
    monitoring: Monitoring | None = None
    """What the fleet's Prometheus is told (roles/monitoring/targets.py), where the deploy is for that."""
    here: bool = False
    """It is on this host."""

    def each(self) -> Iterator[str]:
        """The engines' names, so that pyinfra keeps the order of operations in a loop."""
        yield from host.loop(self.names)

    @property
    def asked(self) -> dict[str, Any]:
        """What its operations are given."""
        return {"request": self.request, "sudo": self.sudo}

    @cached_property
    def request(self) -> dict[str, Any]:
        """What the probe is asked for: the host's own configuration says what its engines are."""
        if self.deploy == "monitoring":
            return asked_for(self.monitoring, self.here)
        if self.deploy == "rollback":
            return {"plan": list(self.names)}  # what a switch would end first
        return {self.deploy: list(self.names)} if self.deploy in ("stop", "remove") else {}


@contained
def existing_host(deploy: str) -> ExistingHost | None:
    """The current host for `deploy` (one of NEEDS); None when it has failed (and was told why)."""
    need = NEEDS[deploy]
    if not inventory_is_right(deploy, need):
        return None
    spec = host.data.get("sglang_host") if need >= Need.ENGINES else None
    names = tuple(host.data.get("sglang_engines") or ())
    one = host.data.get("engine")
    if deploy == "remove" and one is not None:
        # Also one that has left the inventory.
        try:
            names = (checked_name(str(one)),)
        except Unusable as error:
            fail_host(f"--data engine: {error}")
            return None
    if not names and deploy in ("verify", "collective"):
        say(state.inventory.get_host(host.name), NO_ENGINE)
        return None
    monitoring: Monitoring | None = host.data.get("sglang_monitoring")
    found = ExistingHost(
        deploy,
        names,
        spec.engines if isinstance(spec, HostSpec) else (),
        bool(host.data.get("_sudo")),
        monitoring if deploy == "monitoring" else None,
        bool(monitoring and monitoring.prometheus == host.data.get("sglang_name")),
    )
    return found if host_is_fit(snapshot(found.request), deploy) else None
