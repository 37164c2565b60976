"""Compile caches on their way between hosts, where the inventory shares them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from pyinfra.api import deploy
from pyinfra.context import host

from roles.compiled.operations import brought, harvested
from roles.engine.desired import DesiredEngine
from roles.remote.failing import contained
from roles.remote.snapshot import JSON
from roles.stages.desired import DesiredHost
from roles.switch.decision import decision_of


@contained
@deploy("Compile caches")
def bring_compiled(desired: DesiredHost) -> None:
    """
    Bring what other hosts have compiled to engines that start here for the first time.

    + desired: the host
    """
    for name, asked in sharing(desired):
        brought(name=f"{name}: compile caches", **asked)


@contained
@deploy("Compile caches")
def keep_compiled(desired: DesiredHost) -> None:
    """
    Keep what engines have compiled that are ready now, for other hosts.

    + desired: the host
    """
    for name, asked in sharing(desired):
        harvested(name=f"{name}: compile caches are kept", **asked)


def sharing(desired: DesiredHost) -> Iterator[tuple[str, dict[str, Any]]]:
    """Each engine that shares, and what its operations are given."""
    for engine in host.loop([one for one in desired.engines if one.spec.compile_cache.share]):
        yield engine.name, {"engine": engine.spec, "starts": starts_of(engine), **desired.asked}


def starts_of(engine: DesiredEngine) -> Callable[[JSON], bool]:
    """Whether this run starts the engine."""
    decide = decision_of(engine)
    return lambda facts: decide(facts).now
