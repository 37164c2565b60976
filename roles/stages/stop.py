"""Stopping engines, taking them away, and going back to the release before."""

from __future__ import annotations

from pyinfra.api import deploy

from roles.remote.failing import contained
from roles.stages.existing import ExistingHost
from roles.switch.rollback import rolled_back
from roles.switch.stop import removed, stopped


@contained
@deploy("Stop")
def stop_engines(existing: ExistingHost) -> None:
    """
    Stop each engine of the host and disable it.

    + existing: the host and its engines' names
    """
    for engine in existing.each():
        stopped(name=f"{engine}: stopped", engine=engine, **existing.asked)


@contained
@deploy("Remove")
def remove_engines(existing: ExistingHost) -> None:
    """
    Take each engine of the host away.

    + existing: the host and its engines' names
    """
    for engine in existing.each():
        removed(name=f"{engine}: removed", engine=engine, **existing.asked)


@contained
@deploy("Rollback")
def rollback_engines(existing: ExistingHost) -> None:
    """
    Put the release before the live one of each engine live again.

    + existing: the host and its engines' names
    """
    for engine in existing.each():
        rolled_back(name=f"{engine}: release before", engine=engine, **existing.asked)
