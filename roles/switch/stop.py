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
from roles.switch.operations import plan_lines
from sglangctl.systemd.unit_names import engine_unit, watch_unit


@operation()
def stopped(engine: str, request: JSON, sudo: bool = False) -> Commands:
    """
    Stop an engine, end what is left of it, and disable it.

    + engine: its name
    + request: what the probe is asked for
    + sudo: whether commands need it on this host
    """
    facts = read(request)
    if is_down(facts, engine):
        host.noop(f"{engine} is stopped")
        return
    show([f"stop of {engine}:", *stop_lines(facts, engine)])
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
    facts = read(request)
    removal = (facts.get("removals") or {}).get(engine) or {}
    if removal.get("refused"):
        sentence = f"{engine} cannot be removed: {removal['refused']}"
        yield will_fail(sentence)
        return
    lines = list(removal.get("lines") or [])
    if not any(line.startswith("remove ") for line in lines):
        host.noop(f"nothing of {engine} is here")
        return
    running = [] if is_down(facts, engine) else stop_lines(facts, engine)
    show([f"removal of {engine}:", *running, *lines])
    yield on_host("remove", engine, sudo)
    forget()


def stop_lines(facts: JSON, engine: str) -> list[str]:
    """The units and processes that a stop would end."""
    about = engine_facts(facts, engine)
    unit, watch = about.get("unit") or {}, about.get("watch") or {}
    lines = []
    if stop_plan(facts, engine):
        lines += plan_lines(facts, engine)
    elif not unit_is_down(unit):  # not configured there, or others are on its GPUs too
        lines.append(f"stop {engine_unit(engine)} ({states(unit)})")
    if unit.get("UnitFileState") not in STAYS_DOWN:
        lines.append(f"disable {engine_unit(engine)} ({unit.get('UnitFileState')})")
    if not unit_is_down(watch):
        lines.append(f"stop {watch_unit(engine)} ({states(watch)})")
    return lines


def stop_plan(facts: JSON, engine: str) -> JSON:
    """The host's plan of a stop; empty where the units alone would be stopped."""
    plan: JSON = (facts.get("plans") or {}).get(engine) or {}
    return {} if plan.get("refused") else plan


STAYS_DOWN = (None, "", "disabled", "static", "masked")
"""systemd's UnitFileState of a unit that does not start at boot by itself (the watch is static)."""


def states(unit: JSON) -> str:
    return f"{unit.get('ActiveState')}, {unit.get('UnitFileState') or 'no unit file'}"


def unit_is_down(unit: JSON) -> bool:
    """Whether a unit neither runs nor would start at boot."""
    return unit.get("ActiveState") in (None, "inactive") and (
        unit.get("UnitFileState") in STAYS_DOWN
    )


def is_down(facts: JSON, engine: str) -> bool:
    """Whether nothing of an engine runs, nor would at boot: its units, and what they left."""
    about = engine_facts(facts, engine)
    units = (about.get("unit") or {}, about.get("watch") or {})
    return all(map(unit_is_down, units)) and not stop_plan(facts, engine).get("processes_to_end")


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
