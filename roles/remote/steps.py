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
from sglangctl.util.terminal import cut

HEARTBEAT_S = 10.0
SHORT_S = 5
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
    more: Sequence[str] = (),
) -> list[str]:
    """Run a command to its end and return its stdout lines.

    `more`: a short command whose first line of output each progress line ends with.

    `timeout` on the host ends it there too: pyinfra's own timeout leaves it running. HostFailed
    has the title, the last lines and `then`, the next step (or what it says
    of all lines).
    """
    bounded = StringCommand(
        "timeout --kill-after=30", f"{limit_s:g}", "sh -c", StringCommand(QuoteString(command))
    )
    say(host, f"{title} ...")
    with signs_of_life(host, title, lambda: first_line(host, more, sudo) if more else ""):
        ok, output = host.run_shell_command(bounded, _sudo=sudo)
    if not ok:
        lines = [line for line in output.output_lines if line.strip()]
        shown = lines[-SHOWN:] or ["(no output came: was the link to the host lost?)"]
        said = then if isinstance(then, str) else then(lines)
        raise HostFailed("\n".join([f"{title} failed:", *(f"  {line}" for line in shown), said]))
    return list(output.stdout_lines)


@contextmanager
def signs_of_life(host: Host, title: str, more: Callable[[], str] = lambda: "") -> Iterator[None]:
    """A line every HEARTBEAT_S while a command runs that says nothing itself."""
    began = time.monotonic()

    def heartbeat() -> None:
        while True:
            gevent.sleep(HEARTBEAT_S)
            said = [duration(time.monotonic() - began), more()]
            say(host, f"{title}: {', '.join(filter(None, said))}")

    greenlet = gevent.spawn(heartbeat)
    try:
        yield
    finally:
        greenlet.kill()


def first_line(host: Host, argv: Sequence[str], sudo: bool) -> str:
    """What a short command says, beside one that runs; nothing where it fails."""
    command = StringCommand(*map(QuoteString, argv))
    try:
        ok, output = host.run_shell_command(command, _sudo=sudo, _timeout=SHORT_S)
    except Exception:  # whatever is wrong with the link, the command beside it says so
        return ""
    return cut(output.stdout_lines[0].strip(), 60) if ok and output.stdout_lines else ""
