"""pyinfra in the middle of a deploy file, without a network: its current host is this machine."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from pyinfra.api import Config, Inventory, State
from pyinfra.context import ctx_host, ctx_state


@contextmanager
def deploying(*others: str, check_for_changes: bool = False) -> Iterator[State]:
    """`@local` is connected and current; `others` are in the run too, and never connected to."""
    state = State(
        Inventory((["@local", *others], {})), Config(), check_for_changes=check_for_changes
    )
    state.active_hosts = state.activated_hosts = set(state.inventory)
    host = state.inventory.get_host("@local")
    host.connect()
    with ctx_state.use(state), ctx_host.use(host):
        yield state
