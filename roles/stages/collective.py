"""Whether the GPUs of engines that are down add up."""

from __future__ import annotations

from pyinfra.api import deploy
from pyinfra.context import host

from roles.readiness.collective import added_up
from roles.remote.failing import contained
from roles.stages.existing import ExistingHost


@contained
@deploy("Collective")
def collectives(existing: ExistingHost) -> None:
    """
    Run all-reduces on each engine's GPUs, one engine after the other.

    + existing: the host and its engines
    """
    for engine in host.loop(existing.specs):
        added_up(name=f"{engine.name}: GPUs add up", engine=engine, sudo=existing.sudo)
