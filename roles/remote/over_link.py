"""A command of an operation that runs over a hardened link, and fails its own host."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from pyinfra.api import FunctionCommand, Host, State
from pyinfra.context import host

from roles.remote.failing import HostFailed, checked, say
from roles.remote.interrupt import Interrupted, interruptible
from roles.remote.link import Link, LinkLost


def over_link(
    run: Callable[[Link], None],
    sudo: bool,
    interrupted: str,
    unknown: Callable[[Host, str], None] = lambda host, sentence: None,
) -> FunctionCommand:
    """A command for pyinfra that calls `run`, which raises HostFailed.

    `interrupted` is what Ctrl-C says. `unknown` is told of a failure too (host, sentence).
    """
    arguments: dict[str, Any] = dict(host.current_op_global_arguments or {})
    if sudo:
        arguments["_sudo"] = True

    def linked(state: State, host: Host) -> None:
        try:
            run(Link(state, host, lambda line: say(host, line, fg="yellow"), arguments))
        except (LinkLost, HostFailed) as failure:
            unknown(host, str(failure))
            raise HostFailed(str(failure)) from None

    return FunctionCommand(checked(or_interrupted(linked, interrupted)), (), {})


def or_interrupted(
    run: Callable[[State, Host], None], sentence: str
) -> Callable[[State, Host], None]:
    """Ctrl-C fails the host with `sentence`: it ends the following, not the work."""

    def interrupted(state: State, host: Host) -> None:
        try:
            with interruptible():
                run(state, host)
        except Interrupted:
            raise HostFailed(sentence) from None

    return interrupted
