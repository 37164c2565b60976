"""What was changed on a host beside an engine that runs, and is put right without a restart."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from pyinfra.context import host

from roles.engine.desired import DesiredEngine
from roles.remote import program
from roles.remote.failing import HostFailed, say
from roles.remote.link import Link
from roles.remote.operation import Commands, operation, read, show
from roles.remote.over_link import over_link
from roles.remote.program import PYTHON
from roles.remote.snapshot import JSON, engine_facts, forget
from roles.remote.steps import signs_of_life
from roles.switch.decision import Decide
from sglangctl.systemd.unit_names import engine_unit

RUNNING = ("active", "activating", "reloading")
ENABLED = ("enabled", "enabled-runtime")
MORE_S = 60.0
"""For freeing beyond the stop of a unit."""


@dataclass(frozen=True)
class Drift:
    """What is wrong, one sentence each, with what puts it right."""

    replaced: tuple[str, ...] = ()
    """Of units that the engine replaces: they run or are enabled again."""
    disabled: tuple[str, ...] = ()
    """Of the engine's own unit: it does not start at boot."""

    @property
    def lines(self) -> list[str]:
        return [*self.replaced, *self.disabled]


def drift_of(engine: Mapping[str, Any], name: str) -> Drift:
    """From what the probe says of one engine. Pure."""
    replaced = []
    for unit, found in (engine.get("replaces") or {}).items():
        about = found or {}
        states = [about.get("ActiveState"), about.get("UnitFileState")]
        again = [
            *(["runs"] if states[0] in RUNNING else []),
            *(["is enabled"] if states[1] in ENABLED else []),
        ]
        if again:
            words = " and ".join(again)
            verb = "stop and disable" if "runs" in again else "disable"
            replaced.append(f"{unit}, which {name} replaces, {words} again: {verb} it")
    own = engine.get("unit") or {}
    disabled = []
    # After a failed switch it is disabled on purpose: an engine that runs unproven is not committed.
    failed = (engine.get("state") or {}).get("phase") == "failed"
    if not failed and own.get("UnitFileState") not in ENABLED:
        disabled.append(f"{engine_unit(name)} does not start at boot: enable it")
    return Drift(tuple(replaced), tuple(disabled))


@operation()
def as_committed(
    engine: DesiredEngine, decide: Decide, request: JSON, sudo: bool = False
) -> Commands:
    """
    Stop and disable what an engine replaces where that came back, and enable the engine itself.

    The engine runs on. Where it has to be switched, the switch does all of this.

    + engine: the engine
    + decide: from the probe's document to whether a switch is needed, and why
    + request: what the probe is asked for
    + sudo: whether commands need it on this host
    """
    facts = read(request)
    found = drift_of(engine_facts(facts, engine.name), engine.name)
    if decide(facts).needed or not found.lines:
        host.noop(f"what {engine.name} replaces is down, or goes with the switch")
        return
    show(found.lines)

    def run(link: Link) -> None:
        commands = []
        if found.replaced:
            commands.append(("free", engine.name, "--replaced"))
        commands.append(("switch", engine.name, f"--commit={engine.release.digest}"))
        for command in commands:
            with signs_of_life(link.host, f"sglangctl {command[0]} {engine.name}"):
                answer = link.run(
                    *PYTHON,
                    program.path(),
                    *command,
                    wait_s=engine.spec.limits.stop_units_s + MORE_S,
                )
            for line in answer.lines:
                say(link.host, line)
            if not answer.ok:
                raise HostFailed("\n".join(answer.errors) or f"sglangctl {command[0]} failed")

    yield over_link(run, sudo, "interrupted: deploy again")
    forget()
