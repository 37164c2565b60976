"""What our operations share: reading the host, printing, and failing their own host only."""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from functools import wraps
from inspect import signature
from typing import Any, ParamSpec, cast

from pyinfra import api
from pyinfra.api import FunctionCommand, StringCommand
from pyinfra.api.operation import PyinfraOperation
from pyinfra.context import host, state

from roles.remote import look
from roles.remote.failing import NobodyLeft, fail_host, failing, internal_error, say
from roles.remote.snapshot import JSON, snapshot

P = ParamSpec("P")

Commands = Generator[StringCommand | FunctionCommand, None, None]


class Unread(Exception):
    """The host could not be read and has failed over it: the operation has nothing to do."""


def operation(is_idempotent: bool = True) -> Callable[[Callable[P, Commands]], PyinfraOperation[P]]:
    """pyinfra's decorator, for an operation that fails its own host and no other.

    Where an operation's generator raises, pyinfra ends the run for all hosts.
    """

    def decorate(function: Callable[P, Commands]) -> PyinfraOperation[P]:
        @wraps(function)
        def contained(*arguments: P.args, **named: P.kwargs) -> Commands:
            try:
                yield from function(*arguments, **named)
            except NobodyLeft:
                raise
            except Unread:
                yield failing("the host could not be read, see above")
            except Exception as error:
                if state.is_executing:
                    yield failing(internal_error(error))
                else:
                    fail_host(internal_error(error))

        added = api.operation(is_idempotent=is_idempotent)(contained)
        own = signature(function).parameters

        @wraps(added)
        def called(*arguments: Any, **named: Any) -> Any:
            looked = look.current()
            if looked is None:
                return added(*arguments, **named)
            # Without pyinfra's own arguments, such as `name`.
            mine = {key: value for key, value in named.items() if key in own}
            return looked.ask(function, *arguments, **mine)

        return cast("PyinfraOperation[P]", called)

    return decorate


def read(request: JSON) -> JSON:
    """The host's state, see roles/remote/snapshot.py. Unread ends the operation that calls this."""
    facts = snapshot(request)
    if facts is None:
        raise Unread
    return facts


def show(lines: Sequence[str]) -> None:
    """Print once: with the plan where there is one, while executing where there is none (-y)."""
    if look.keep(lines) or state.is_executing == state.check_for_changes:
        return
    show_now(lines)


def show_now(lines: Sequence[str]) -> None:
    """Print, whatever the phase is."""
    for line in lines:
        say(host, line, fg={"+": "green", "-": "yellow"}.get(line[:1]))


def planned(lines: Sequence[str]) -> Sequence[str]:
    """For `show`: lines that the host says itself while it does what they are about; only a plan
    says them."""
    return () if state.is_executing or look.current() else lines


def will_fail(sentence: str) -> FunctionCommand:
    """Fail the host with `sentence`. A plan says it too; without one (-y) it is said once."""
    if not state.is_executing:
        show([f"will fail: {sentence}"])
    return failing(sentence)
