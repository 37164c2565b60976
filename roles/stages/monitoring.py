"""Prometheus on the host that the inventory names, node_exporter on each, and what they are told."""

from __future__ import annotations

from pyinfra.api import deploy
from pyinfra.context import host, state

from roles.monitoring import operations
from roles.remote.failing import contained, say
from roles.stages.existing import ExistingHost

NONE = "the inventory has no `monitoring: {prometheus: HOST}`: nothing is set up"


@contained
@deploy("Monitoring")
def monitor(existing: ExistingHost) -> None:
    """
    Set up node_exporter on the host, and Prometheus where the inventory says so.

    + existing: the host and its engines
    """
    monitoring = existing.monitoring
    if monitoring is None:
        say(state.inventory.get_host(host.name), NONE)
        return
    installed: list[str] = []
    told: list[str] = []
    names = [operations.EXPORTER, *([operations.PROMETHEUS] if existing.here else [])]
    operations.packages(name="packages", names=names, installed=installed, **existing.asked)
    operations.exported(
        name="node_exporter", engines=existing.names, after=installed, sudo=existing.sudo
    )
    if existing.here:
        operations.configured(
            name="Prometheus",
            monitoring=monitoring,
            installed=installed,
            told=told,
            **existing.asked,
        )
        operations.grafana(name="Grafana", request=existing.request)
        operations.scraped(
            name="who answers", monitoring=monitoring, after=told, sudo=existing.sudo
        )
