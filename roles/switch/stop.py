"""Stopping and removing engines: by their names alone, whatever else the inventory says."""

from __future__ import annotations

from pyinfra.api import FunctionCommand, Host, State, StringCommand
from pyinfra.api.command import QuoteString
from pyinfra.context import host

from roles.remote import program
from roles.remote.failing import HostFailed, checked, say
from roles.remote.operation import Commands, operation, read, show, will_fail
from roles.remote.snapshot import JSON, Input, engine_facts, forget
from roles.remote.steps import signs_of_life


@operation()
def stopped(engine: str, request: JSON, sudo: bool = False) -> Commands:
    """
    Stop an engine, end what is left of it, and disable it.

    + engine: its name
    + request: what the probe is asked for
    + sudo: whether commands need it on this host
    """
    facts = read(request)
    found = engine_facts(facts, engine, "stops")
    if found.get("refused"):
        yield will_fail(f"{engine} cannot be stopped: {found['refused']}")
        return
    if not found.get("lines"):
        host.noop(f"{engine} is stopped")
        return
    show([f"stop of {engine}:", *found["lines"]])
    yield on_host("stop", engine, sudo)
    forget()


@operation()
def removed(engine: str, request: JSON, sudo: bool = False) -> Commands:
    """
    Stop an engine and delete what we put on the host for it.

    + engine: its name
    + request: what the probe is asked for
    + sudo: whether commands need it on this host
    """
    yield from removal_of(engine, request, sudo)


def removal_of(engine: str, request: JSON, sudo: bool) -> Commands:
    """What `removed` does."""
    facts = read(request)
    stop, removal = (engine_facts(facts, engine, part) for part in ("stops", "removals"))
    refused = removal.get("refused") or stop.get("refused")
    if refused:
        yield will_fail(f"{engine} cannot be removed: {refused}")
        return
    lines = list(removal.get("lines") or [])
    if not any(line.startswith("remove ") for line in lines):
        # pyinfra shows no noop, and the name may be a typing error.
        show([f"nothing of {engine} is here"])
        host.noop(f"nothing of {engine} is here")
        return
    show([f"removal of {engine}:", *(stop.get("lines") or []), *lines])
    yield on_host("remove", engine, sudo)
    forget()


def on_host(command: str, engine: str, sudo: bool) -> FunctionCommand:
    """Run `sglangctl COMMAND ENGINE` of this version, even where none is installed."""

    def run(state: State, host: Host) -> None:
        line = StringCommand("python3 -I -B -", QuoteString(command), QuoteString(engine))
        # A stop takes up to two minutes; what the host says of it comes at its end.
        with signs_of_life(host, f"sglangctl {command} {engine}"):
            ok, output = host.run_shell_command(line, _stdin=Input([program.loader()]), _sudo=sudo)
        for text in output.stdout_lines:
            say(host, text)
        if not ok:
            raise HostFailed("\n".join(output.stderr_lines) or f"sglangctl {command} failed")

    return FunctionCommand(checked(run), (), {})
