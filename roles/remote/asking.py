"""sudo never prompts for a password.

pyinfra asks whoever is there, in the middle of what the other hosts print, and ends the run for all
of them with a traceback where nobody can answer.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from pyinfra.connectors import local, ssh
from pyinfra.connectors.util import CommandOutput

PASSWORD = (
    "sudo on this host wants a password: let this user run it without one (NOPASSWD in "
    "/etc/sudoers.d), or set `ssh: {user: root}`"
)


def guard() -> None:
    """Have pyinfra take a sudo that wants a password for a command that failed. Patched, because
    pyinfra has no setting for it."""
    for module in (ssh, local):
        vars(module)["execute_command_with_sudo_retry"] = once


def once(
    host: Any, arguments: Any, execute: Callable[[], tuple[int, CommandOutput]]
) -> tuple[int, CommandOutput]:
    """In the place of pyinfra's function that asks and tries again."""
    return execute()
