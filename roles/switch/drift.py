"""What was changed on a host beside an engine that runs, and is repaired without a restart."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from pyinfra.context import host, state

from roles.engine.desired import DesiredEngine, changed_against_live
from roles.host.managed import Change, change, rights_only
from roles.remote import program
from roles.remote.failing import say
from roles.remote.link import Link
from roles.remote.operation import Commands, operation, read, show
from roles.remote.over_link import over_link
from roles.remote.snapshot import JSON, engine_facts, forget
from roles.remote.steps import signs_of_life
from roles.report.result import keep
from roles.switch.decision import Decide, side_of, unread
from roles.switch.effects import MISSING, restarts
from roles.switch.proof import proved_by
from roles.switch.values import values
from sglangctl.systemd.unit import ENABLED, UP
from sglangctl.systemd.unit_names import RESUME, RESUME_AT_BOOT, engine_unit

MORE_S = 60.0
"""For freeing beyond the stop of a unit."""


@dataclass(frozen=True)
class Drift:
    """What is wrong, one sentence each, with what puts it right."""

    replaced: tuple[str, ...] = ()
    """Of units that the engine replaces: they run or are enabled again."""
    disabled: tuple[str, ...] = ()
    """Of the engine's own unit, and of what looks for an interrupted switch: it does not start at boot."""
    unit: tuple[str, ...] = ()
    """Of the engine's own unit: edited in what the running process has not read."""
    proven: tuple[str, ...] = ()
    """Of what the switch wrote when the engine was proven: its state, and the link to what is known to be good."""
    rights: tuple[Change, ...] = ()
    """Files of the live release with another mode, owner or group."""
    diff: tuple[str, ...] = ()
    """Of the edited unit: somebody's work, which is kept in the report."""

    @property
    def lines(self) -> list[str]:
        rights = [f"{one.item.path}: {one.why}" for one in self.rights]
        return [*self.replaced, *self.disabled, *self.unit, *self.proven, *rights]


def drift_of(engine: Mapping[str, Any], name: str, degraded_will_do: bool = True) -> Drift:
    """From what the probe says of one engine. Pure.

    + degraded_will_do: whether a degraded engine counts as proven (`readiness.degraded: commit`)
    """
    replaced = []
    for unit, found in (engine.get("replaces") or {}).items():
        about = found or {}
        states = [about.get("ActiveState"), about.get("UnitFileState")]
        again = [
            *(["runs"] if states[0] in UP else []),
            *(["is enabled"] if states[1] in ENABLED else []),
        ]
        if again:
            found_again = " and ".join(again)
            verb = "stop and disable" if "runs" in again else "disable"
            replaced.append(f"{unit}, which {name} replaces, {found_again} again: {verb} it")
    own = engine.get("unit") or {}
    disabled = []
    # After a failed switch it is disabled on purpose: an engine that runs unproven is not committed.
    phase = (engine.get("state") or {}).get("phase")
    if phase != "failed" and own.get("UnitFileState") not in ENABLED:
        disabled.append(f"{engine_unit(name)} does not start at boot: enable it")
    links, proven = engine.get("releases") or {}, []
    if links.get("current") and proved_by(engine, degraded_will_do):
        if engine.get("state", {}) is None and not engine.get("state_reason"):
            proven.append(
                f"{name}'s state.json is lost: write it again; what ran before its last switch is not "
                "known any more"
            )
        elif phase in ("live", "back") and links.get("known_good", "") is None:
            proven.append(f"{name}'s link known-good is lost: make it again")  # for rollback.py
    return Drift(tuple(replaced), tuple(disabled), proven=tuple(proven))


def drift(engine: DesiredEngine, facts: JSON) -> Drift:
    """All of it for one engine. Pure; says nothing where it has to be switched."""
    engine = side_of(engine, facts)
    about = engine_facts(facts, engine.name)
    found = drift_of(about, engine.name, engine.spec.readiness.degraded == "commit")
    if (facts["files"].get(RESUME_AT_BOOT) or {}).get("kind") == "absent":
        found = replace(
            found, disabled=(*found.disabled, f"{RESUME} does not start at boot: enable it")
        )
    unit = engine.installed_unit(facts)
    edited = change(unit, facts["files"][unit.path])
    told = []
    moves = unread(engine, facts)
    if moves:
        told.append(f"{'; '.join(values(moves))}: the unit is written, no restart")
    elif edited is not None and not restarts(edited):
        what = (
            "is missing" if edited.why == MISSING else f"was edited ({'; '.join(values([edited]))})"
        )
        told.append(f"{engine.spec.unit} {what}: write it, no restart")
    if (about.get("unit") or {}).get("NeedDaemonReload") == "yes":
        told.append(f"systemd has not read {engine.spec.unit} since it changed: reload, no restart")
    rights = [one for one in changed_against_live(engine, facts) if rights_only(one)]
    found_other = edited is not None and edited.why != MISSING and not moves
    diff = edited.diff if edited is not None and found_other else ()
    return replace(found, unit=tuple(told), rights=tuple(rights), diff=diff)


@operation()
def as_committed(
    engine: DesiredEngine, decide: Decide, request: JSON, sudo: bool = False
) -> Commands:
    """
    Put right what differs beside the running engine: what it replaces came back, it is not
    enabled, its unit was edited in what the process has not read, files have wrong rights.

    The engine keeps running. Where it has to be switched, the switch does all of this.

    + engine: the engine
    + decide: from the probe's document to whether a switch is needed, and why
    + request: what the probe is asked for
    + sudo: whether commands need it on this host
    """
    facts = read(request)
    found = drift(engine, facts)
    if decide(facts).needed or not found.lines:
        host.noop(f"what {engine.name} replaces is down, or goes with the switch")
        return
    show([*found.lines, *(found.diff if state.config.DIFF else ())])
    if found.diff:
        keep(state.inventory.get_host(host.name), f"{engine.spec.unit} as found", list(found.diff))

    def run(link: Link) -> None:
        for one in found.rights:
            item = one.item
            for argv in (
                ("chown", f"{item.owner}:{item.group}", "--", item.path),
                ("chmod", item.mode, "--", item.path),
            ):
                link.run(*argv, wait_s=MORE_S).needed(f"{argv[0]} failed")
        digest = side_of(engine, facts).release.digest
        commands: list[tuple[str, ...]] = []
        commands += [("free", engine.name, "--replaced")] if found.replaced else []
        time = str((engine_facts(facts, engine.name).get("state") or {}).get("time") or "-")
        commands += [("switch", engine.name, f"--commit={digest}", f"--seen={time}")]
        for command in commands:
            with signs_of_life(link.host, f"sglangctl {command[0]} {engine.name}"):
                wait_s = engine.spec.limits.stop_units_s + MORE_S
                answer = link.run(*program.argv(*command), wait_s=wait_s)
            for line in answer.lines:
                say(link.host, line)
            answer.needed(f"sglangctl {command[0]} failed")

    yield over_link(run, sudo, "interrupted: deploy again")
    forget()
