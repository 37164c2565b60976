"""Long commands on a host, with a progress line every ten seconds."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

import gevent
from pyinfra.api import Host, StringCommand
from pyinfra.api.command import QuoteString

from roles.remote.failing import HostFailed, say
from sglangctl.startup.render import duration

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
    bounded = StringCommand(
        "timeout --kill-after=30", f"{limit_s:g}", "sh -c", StringCommand(QuoteString(command))
    )
    say(host, f"{title} ...")
    with signs_of_life(host, title):
        ok, output = host.run_shell_command(bounded, _sudo=sudo)
    if not ok:
        lines = [line for line in output.output_lines if line.strip()]
        shown = lines[-SHOWN:] or ["(no output came: was the link to the host lost?)"]
        said = then if isinstance(then, str) else then(lines)
        raise HostFailed("\n".join([f"{title} failed:", *(f"  {line}" for line in shown), said]))
    return list(output.stdout_lines)


@contextmanager
def signs_of_life(host: Host, title: str) -> Iterator[None]:
    """A line every HEARTBEAT_S while a command runs that says nothing itself."""
    began = time.monotonic()

    def heartbeat() -> None:
        while True:
            gevent.sleep(HEARTBEAT_S)
            say(host, f"{title}: {duration(time.monotonic() - began)}")

    greenlet = gevent.spawn(heartbeat)
    try:
        yield
    finally:
        greenlet.kill()
