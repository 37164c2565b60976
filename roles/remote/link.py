"""Commands over the connector that outlive the link.

pyinfra waits for ever on a link that was cut silently, and takes one that was closed for a
command that failed. Here a dead link is noticed within 20 seconds and made again:

* data on the wire every KEEPALIVE_S, and TCP_USER_TIMEOUT, so that the kernel gives up on a peer
  that no longer acknowledges (measured: noticed after 14 s with 5 s and 9 s);
* a deadline of our own for each command, for a peer whose kernel still acknowledges (a frozen
  host) and for links that are no socket (ProxyJump).

A command that is run through a Link must be idempotent: a lost link runs it again.
"""

from __future__ import annotations

import socket
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import gevent
from paramiko import SSHException
from pyinfra.api import Host, QuoteString, State, StringCommand
from pyinfra.api.arguments import CONNECTOR_ARGUMENT_KEYS
from pyinfra.api.exceptions import ConnectError
from pyinfra.connectors.ssh import SSHConnector

from roles.remote.failing import HostFailed
from roles.remote.limits import TooMuchOutput
from roles.remote.snapshot import Input
from sglangctl.startup.render import duration

KEEPALIVE_S = 5
USER_TIMEOUT_MS = 9000
ANSWER_S = 10.0
"""Beyond what the command itself is told to wait: python's start and sudo on a busy host."""
GIVE_UP_S = 60.0
UNANSWERED_S = 300.0
"""A host that can be connected to and answers nothing: it may be swapping while it loads."""
CONNECT_S = 15.0
PAUSE_S = 2.0
GOES_ON = "the work continues there: look again with deploys/verify.py"
NOT_PASSED_ON = frozenset(["_timeout", "_stdin", "_get_pty", "_success_exit_codes"])


class LinkLost(Exception):
    """The host could not be reached again; the text is one sentence."""


class _NoAnswer(Exception):
    """The deadline of one attempt passed."""


@dataclass(frozen=True)
class Answer:
    """A command that ran to its end."""

    ok: bool
    lines: list[str]
    errors: list[str]

    def needed(self, otherwise: str) -> Answer:
        """The answer of a command that has to succeed; else HostFailed with what it said."""
        if not self.ok:
            raise HostFailed("\n".join(self.errors) or otherwise)
        return self


class Link:
    """One host's connector. `arguments` are the operation's own (_sudo, ...): inside a function
    command pyinfra does not apply them by itself."""

    def __init__(
        self,
        state: State,
        host: Host,
        say: Callable[[str], None],
        arguments: Mapping[str, Any] | None = None,
    ) -> None:
        self.state = state
        self.host = host
        self.say = say
        self.arguments = {
            key: value
            for key, value in (arguments or {}).items()
            if key in CONNECTOR_ARGUMENT_KEYS and key not in NOT_PASSED_ON
        }
        self.harden()

    def run(self, *argv: str, wait_s: float = 0.0, stdin: str | None = None) -> Answer:
        """Run `argv` (data, no shell syntax), again after a lost link.

        `wait_s`: how long the command itself may take. `stdin`: whole lines for its standard
        input. LinkLost when the link stays away.
        """
        command = StringCommand(*[QuoteString(word) for word in argv])
        given = {} if stdin is None else {"_stdin": Input(stdin.splitlines())}
        lost: float | None = None
        while True:
            try:
                with gevent.Timeout(wait_s + ANSWER_S, _NoAnswer):
                    ok, output = self.host.run_shell_command(
                        command,
                        print_input=self.state.print_input,
                        **self.arguments,
                        **given,
                    )
            except _NoAnswer:
                reason = f"no answer for {duration(wait_s + ANSWER_S)}"
            except TooMuchOutput as error:
                raise HostFailed(str(error)) from None
            except (OSError, EOFError, SSHException) as error:
                reason = str(error) or type(error).__name__
            else:
                if ok or not self.is_down():
                    errors = [line for line in output.stderr_lines if line.strip()]
                    return Answer(ok, output.stdout_lines, errors)
                reason = "the connection was closed"
            lost = time.monotonic() if lost is None else lost
            if time.monotonic() - lost >= UNANSWERED_S:
                raise LinkLost(
                    f"the host can be connected to and has answered nothing for "
                    f"{duration(time.monotonic() - lost)} ({reason}); {GOES_ON}"
                )
            self.reconnect(reason)

    def is_down(self) -> bool:
        """Whether an ssh link is dead; other connectors have none that could be."""
        connector = self.host.connector
        if not isinstance(connector, SSHConnector):
            return False
        gevent.sleep(0.2)  # a server that is killed closes the channel first, then the link
        transport = connector.client.get_transport() if connector.client else None
        return transport is None or not transport.is_active()

    def harden(self) -> None:
        """Make the kernel and paramiko notice a dead peer."""
        connector = self.host.connector
        if not isinstance(connector, SSHConnector) or connector.client is None:
            return
        transport = connector.client.get_transport()
        if transport is None:
            return
        transport.set_keepalive(KEEPALIVE_S)
        option = getattr(socket, "TCP_USER_TIMEOUT", None)  # Linux
        setsockopt = getattr(transport.sock, "setsockopt", None)  # not behind a ProxyJump
        if option is not None and setsockopt is not None:
            setsockopt(socket.IPPROTO_TCP, option, USER_TIMEOUT_MS)

    def reconnect(self, reason: str) -> None:
        """Make the link again; LinkLost after GIVE_UP_S."""
        self.say(f"link lost ({reason}): connecting again; the work continues on the host")
        began = time.monotonic()
        while True:
            try:
                with gevent.Timeout(CONNECT_S, _NoAnswer):
                    self._connect()
                break
            except _NoAnswer:
                reason = f"no connection within {duration(CONNECT_S)}"
            except (ConnectError, OSError, EOFError, SSHException) as error:
                reason = str(error) or type(error).__name__
            if time.monotonic() - began >= GIVE_UP_S:
                raise LinkLost(
                    f"the host cannot be reached for {duration(time.monotonic() - began)} "
                    f"({reason}); {GOES_ON}"
                )
            gevent.sleep(PAUSE_S)
        self.say(f"link is back after {duration(time.monotonic() - began)}")

    def _connect(self) -> None:
        connector = self.host.connector
        if not isinstance(connector, SSHConnector):
            return
        # SSHConnector.disconnect() only forgets the file transfer channels.
        old = connector.client
        connector.disconnect()
        if old is not None:
            gevent.spawn(old.close)
        connector.connect()
        self.harden()
