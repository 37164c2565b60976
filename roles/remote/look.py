"""A look at whether the operations of a host would do anything, before pyinfra gets any of them.

An operation costs pyinfra milliseconds a host, also one that does nothing. During a look an operation of
ours is asked for its first command, and what it wants shown is kept.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from pyinfra.context import host

KEY = "sglang_provision_look"


@dataclass
class Look:
    """What was found so far."""

    busy: bool = False
    """Whether an operation has something to do."""
    lines: list[str] = field(default_factory=list)
    """What the operations want shown."""

    def ask(self, function: Callable[..., Iterator[Any]], *arguments: Any, **named: Any) -> None:
        """Ask one operation, unless one before it is busy: what is found after that is of no use."""
        if not self.busy:
            self.busy = any(True for _ in function(*arguments, **named))


def current() -> Look | None:
    """The look at this host; None where its operations go to pyinfra."""
    found: Look | None = host.connector_data.get(KEY)
    return found


@contextmanager
def looking() -> Iterator[Look]:
    """While inside, this host's operations are asked and not added."""
    look = host.connector_data[KEY] = Look()
    depth = len(host.loop_position)
    try:
        yield look
    finally:
        del host.connector_data[KEY]
        # What was raised in a loop has left its place there, by which pyinfra orders operations.
        del host.loop_position[depth:]


def keep(lines: Sequence[str]) -> bool:
    """Keep what an operation wants shown; False where nobody looks."""
    look = current()
    if look is None:
        return False
    look.lines += lines
    return True
