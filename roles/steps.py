"""Long commands on a host, with a sign of life every ten seconds."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

import gevent
from pyinfra.api import Host, StringCommand

from roles.failing import HostFailed, say

HEARTBEAT_S = 10.0
STEP = "==> "
"""Begins a line of output that says which part of a long command begins."""
SHOWN = 15
"""Last lines of output that a failure shows."""


def run_step(
    host: Host,
    title: str,
    command: StringCommand,
    *,
    sudo: bool,
    limit_s: float,
    then: str | Callable[[Sequence[str]], str],
) -> list[str]:
    """Run a command to its end and return its stdout lines.

    `timeout` on the host ends it there too: pyinfra's own timeout leaves it running. HostFailed
    has the title, the last lines and `then`, the next step (or what it says
    of all lines).
    """
    bounded = StringCommand("timeout --kill-after=30", f"{limit_s:g}", "sh -c", _quoted(command))
    began = time.monotonic()
    say(host, f"{title} ...")
    running = gevent.spawn(host.run_shell_command, bounded, _sudo=sudo)
    while not running.ready():
        running.join(HEARTBEAT_S)
        if not running.ready():
            say(host, f"{title}: {time.monotonic() - began:.0f} s")
    ok, output = running.get()
    if not ok:
        lines = [line for line in output.output_lines if line.strip()]
        shown = lines[-SHOWN:] or ["(no output came: was the link to the host lost?)"]
        said = then if isinstance(then, str) else then(lines)
        raise HostFailed("\n".join([f"{title} failed:", *(f"  {line}" for line in shown), said]))
    return list(output.stdout_lines)


def _quoted(command: StringCommand) -> StringCommand:
    from pyinfra.api.command import QuoteString

    return StringCommand(QuoteString(command))
