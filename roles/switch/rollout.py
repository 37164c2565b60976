"""A host that goes first, for all others."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from pyinfra.api import Host, State
from pyinfra.context import ctx_state, host

from roles.remote.operation import Commands, operation, planned, read, show, will_fail
from roles.remote.snapshot import JSON
from roles.switch.decision import Decide


@operation()
def first_is_ready(first: str, decides: Sequence[Decide], request: JSON) -> Commands:
    """
    Fail the host, before anything of what runs is touched, where the rollout's first host is not ready.

    A host of which no engine has to be switched goes on.

    + first: that host's name
    + decides: from the probe's document to whether a switch is needed, for each engine
    + request: what the probe is asked for
    """
    if host.name == first:
        host.noop("it goes first")
        return
    facts = read(request)
    if not any(decide(facts).now for decide in decides):
        host.noop("nothing is switched here")
        return
    why = unfit(ctx_state.get(), first)
    if why is None:
        show(planned([f"begins once {first} is ready"]))
        host.noop(f"{first} is ready")
        return
    yield will_fail(f"left alone, because {first} goes first (`rollout`) and {why}")


def unfit(state: State, first: str) -> str | None:
    """Why the others may not follow; None: they may. In a plan: as far as is known then.

    A host that --limit leaves out says nothing: whoever names other hosts has decided.
    """
    found = state.inventory.get_host(first)
    if not state.is_host_in_limit(found):
        return None
    if found in state.failed_hosts or found not in state.activated_hosts:
        return f"failed: put it right, then deploy again (without it: --exclude {first})"
    if state.is_executing and not all(done(state, found)):
        return "is not done yet: deploy without --no-wait"
    return None


def done(state: State, first: Host) -> Iterator[bool]:
    """Whether each operation of that host which comes before the one that runs now is done."""
    order = state.get_op_order()
    for op_hash in order[: order.index(host.executing_op_hash)]:
        if op_hash in state.ops[first]:
            yield state.ops[first][op_hash].operation_meta.is_complete()
