"""The operation that puts a staged release live, as one transaction on the host."""

from __future__ import annotations

from collections.abc import Callable, Generator

from pyinfra.api import FunctionCommand, Host, State, StringCommand, operation
from pyinfra.api.command import QuoteString
from pyinfra.context import host

from roles.failing import HostFailed, checked, failing, say
from roles.host import program
from roles.host.operations import UNREAD, show
from roles.host.snapshot import JSON, forget, snapshot
from roles.switch.decision import Decision


@operation()
def switched(
    name_: str,
    digest: str,
    decide: Callable[[JSON], Decision],
    plan_lines: Callable[[JSON], list[str]],
    request: JSON,
    sudo: bool = False,
    policy: str = "declared",
) -> Generator[FunctionCommand, None, None]:
    """
    Stop what the engine replaces, free its GPUs, put the release live and start it.

    Runs on the host as the transient unit sglangctl-switch.service: a lost link is harmless.

    + name_: the engine's name
    + digest: the staged release
    + decide: from the probe's document to whether it is needed, and why
    + plan_lines: from the probe's document to what would be stopped and ended
    + request: what the probe is asked for
    + sudo: whether commands need it on this host
    + policy: what `sglangctl free` may end
    """
    facts = snapshot(request)
    if facts is None:
        yield failing(UNREAD)
        return
    decision = decide(facts)
    if not decision.needed:
        host.noop(f"{name_} runs release {digest[:12]}")
        return
    show([f"restart of {name_}: {decision}", *plan_lines(facts)])

    def run(state: State, host: Host) -> None:
        command = StringCommand(
            "python3 -I -S",
            QuoteString(program.path()),
            "switch",
            QuoteString(name_),
            QuoteString(f"--to={digest}"),
            QuoteString(f"--policy={policy}"),
            QuoteString(f"--reason={decision}"),
            "--detach",
        )
        ok, output = host.run_shell_command(command, _sudo=sudo)
        for line in output.stdout_lines:
            say(host, line)
        if not ok:
            said = "\n".join(output.stderr_lines) or (
                "the link was lost during the switch, which goes on on the host: deploy again"
            )
            raise HostFailed(said)

    yield FunctionCommand(checked(run), (), {})
    forget()
