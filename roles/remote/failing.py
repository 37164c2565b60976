"""Failing one host, with a sentence, and only that host.

pyinfra ends the whole run for all hosts when deploy code, an operation's generator or a fact
raises; these helpers turn that into one red line and one failed host. The sentences are kept for
the report, which pyinfra's own JSON leaves out.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from functools import wraps
from typing import Any, ParamSpec, TypeVar

from paramiko import SSHException
from pyinfra import host, logger, state
from pyinfra.api import FunctionCommand, Host, State
from pyinfra.api.exceptions import PyinfraError

from roles.remote import look
from sglangctl.util.terminal import escaped

P = ParamSpec("P")
T = TypeVar("T")

# The deploy file is run once per host: what is shared between hosts must live in a module.
MESSAGES: dict[str, list[str]] = {}
WRONG = "the inventory is wrong, nothing was changed:"
REFUSED: set[str] = set()
"""Hosts that were not connected to: they are wrong in the inventory."""
FORESEEN: dict[str, list[str]] = {}
"""Host -> the failures that a plan foresees."""
FORESEEN_VARIABLE = "SGLANG_PLAN_FORESEEN"
"""Names the file that gets, a line each: {host, text} a failure that a plan foresees, {host, error}
a failure, {host, choice} what would be done to an engine, {report} what report.json has."""


class HostFailed(Exception):
    """This host cannot go on; the text is one sentence with the cause and the next step."""


class NobodyLeft(PyinfraError):
    """Every host of the run has failed (or more than the run allows).

    It has no traceback for the reader: pyinfra would name a line of our code, as for a crash.
    """

    # gevent sets it, too.
    __traceback__ = property(lambda self: None, lambda self, value: None)


def say(target: Host, text: str, fg: str | None = None) -> None:
    """Print `text` under the host's name, one line after the other."""
    for line in text.splitlines() or [""]:
        line = escaped(line)
        if fg is None:
            target.log(line)
        else:
            target.log_styled(line, fg=fg, log_func=logger.error if fg == "red" else logger.info)


def remember(target: Host, text: str) -> None:
    """Print a failure in red and keep it for the report."""
    say(target, text, fg="red")
    tell_plan(host=target.name, error=text)
    MESSAGES.setdefault(target.name, []).append(text)


def fail_host(text: str) -> None:
    """Fail the current host from deploy code (prepare). Others go on; the run exits 1."""
    target = state.inventory.get_host(host.name)
    remember(target, text)
    drop(target)


def tell_plan(**told: Any) -> None:
    """A line for the command (sglang-plan, sglang-verify) that has started this run."""
    name = os.environ.get(FORESEEN_VARIABLE)
    if name:
        with open(name, "a", encoding="utf-8") as file:
            file.write(json.dumps(told) + "\n")


def drop(target: Host) -> None:
    """Go on without this host, which has been told why; NobodyLeft where it was the last one."""
    try:
        state.fail_hosts({target})
    except PyinfraError as error:
        raise NobodyLeft(f"{str(error).rstrip('!')}, see above") from None


def contained(function: Callable[P, T]) -> Callable[P, T | None]:
    """Deploy code that fails its own host and no other: pyinfra ends the run for all of them where
    it raises. What it raises is an internal error: named as such, traceback at debug level."""

    @wraps(function)
    def run(*arguments: P.args, **named: P.kwargs) -> T | None:
        try:
            return function(*arguments, **named)
        except NobodyLeft:
            raise
        except Exception as error:
            fail_host(internal_error(error))
            return None

    return run


def internal_error(error: Exception) -> str:
    """The sentence for an exception that nobody has thought of; its traceback goes to --debug."""
    logger.debug("internal error", exc_info=error)
    return f"internal error: {error!r}; please report it (traceback: --debug)"


def checked(function: Callable[..., Any]) -> Callable[[State, Host], bool]:
    """A FunctionCommand's function that fails its own host and never raises.

    `function(state, host)` raises HostFailed for an end with a sentence. Anything else that it
    raises is an internal error: named as such, with the traceback at debug level.
    """

    @wraps(function)
    def run(state: State, host: Host) -> bool:
        try:
            function(state, host)
        except HostFailed as failure:
            remember(host, str(failure))
            return False
        except (SSHException, EOFError, OSError) as error:
            remember(
                host,
                f"the link to the host was lost ({error or type(error).__name__}); what was "
                "started there may continue: deploy again",
            )
            return False
        except Exception as error:
            remember(host, internal_error(error))
            return False
        return True

    # pyinfra looks at the signature to find out whether the function wants state and host.
    del run.__wrapped__
    return run


def failing(text: str) -> FunctionCommand:
    """A command that fails its host with `text` when it is executed.

    In a plan that is a failure that is foreseen. To pyinfra it is a change like any other, so
    sglang-plan is told of it.
    """
    if not state.is_executing and look.current() is None:
        tell_plan(host=host.name, text=text)
        FORESEEN.setdefault(host.name, []).append(text)

    def fail(state: State, host: Host) -> None:
        raise HostFailed(text)

    return FunctionCommand(checked(fail), (), {})
