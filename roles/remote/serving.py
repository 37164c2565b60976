"""What a host says of its engines right after a failure: `sglangctl status --json`. Asked once,
quietly: a host that does not answer has failed already."""

from __future__ import annotations

import gevent
from pyinfra import logger
from pyinfra.api import Host, State, StringCommand

from roles.remote import program
from roles.remote.shape import JSON, STATUS, WrongShape, check, parsed
from roles.remote.snapshot import for_connector

LOOK_S = 20
"""A host that hangs must not delay the last screen."""


def engines_now(state: State, host: Host) -> list[JSON] | None:
    """The documents of EngineStatus, in their shape; None where the host did not answer, or has no
    program of ours yet."""
    arguments = for_connector(state, host, {"_timeout": LOOK_S})
    line = StringCommand(*program.argv("status", "--json"))
    try:
        with gevent.Timeout(LOOK_S + 5, TimeoutError):
            _, output = host.run_shell_command(line, **arguments)
        # Its exit status tells whether they serve.
        document = check(parsed("\n".join(output.stdout_lines)), STATUS)
        return list(document["status"])
    except WrongShape:
        return None
    except Exception as error:
        # Whatever a lost link raises here would end the run for all hosts, and this host's failure
        # would be in no report.
        logger.debug("what serves now could not be asked", exc_info=error)
        return None
