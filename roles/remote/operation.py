"""What our operations have in common: what they print, and how they say that they will fail."""

from __future__ import annotations

from collections.abc import Generator, Sequence

from pyinfra.api import FunctionCommand, StringCommand
from pyinfra.context import host, state

from roles.remote.failing import failing, say

UNREAD = "the host could not be read, see above"
Commands = Generator[StringCommand | FunctionCommand, None, None]


def show(lines: Sequence[str]) -> None:
    """Print once: with the plan where there is one, while executing where there is none (-y)."""
    if state.is_executing == state.check_for_changes:
        return
    for line in lines:
        say(host, line, fg={"+": "green", "-": "yellow"}.get(line[:1]))


def will_fail(sentence: str) -> FunctionCommand:
    """Fail the host with `sentence`. A plan says it too; without one (-y) it is said once."""
    if not state.is_executing:
        show([f"will fail: {sentence}"])
    return failing(sentence)
