"""The operation that puts a staged release live, as one transaction on the host."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Sequence

from pyinfra.context import host, state

from roles.engine.desired import DesiredEngine, changed_against_live
from roles.host.managed import Change, change, changes
from roles.host.operations import describe
from roles.remote import follow, program
from roles.remote.failing import HostFailed, say
from roles.remote.link import Link
from roles.remote.operation import Commands, operation, planned, read, show, will_fail
from roles.remote.over_link import over_link
from roles.remote.program import PYTHON
from roles.remote.snapshot import JSON, engine_facts, forget, releases
from roles.report.last_screen import LEFT_ALONE
from roles.report.result import BACK, FALLBACKS, SWITCHES, keep, record
from roles.switch.blockers import blockers
from roles.switch.decision import Decide, Decision
from roles.switch.outcome import fallback_of, others_of, result_of
from roles.switch.staged import prove
from sglangctl.state.journal import Event
from sglangctl.switch import before, cutover
from sglangctl.switch.journal import now
from sglangctl.systemd import unit_names
from sglangctl.systemd.unit_names import watch_unit
from sglangctl.util.terminal import cut, escaped
from sglangctl.util.values import text

START_S = 15.0
"""For a detached switch to be started: see sglangctl/switch/unit.py."""
SHOWN = ("step", "text")
SAID, SAID_TEXT = 2000, 2000
"""Events of a switch in the report, and characters of each, at most: a host that never ends costs
the controller nothing."""
WATCH_S = 130.0
"""For a watch to end and start again."""


@operation()
def configured(
    engine: DesiredEngine,
    decide: Decide,
    watch: Callable[[JSON], list[str]],
    request: JSON,
    sudo: bool = False,
) -> Commands:
    """
    Tell the host what it has to know of an engine that is not switched for it.

    A changed readiness limit, a newer program of the watch, an engine of which nothing is live
    yet: the engine goes on, its watch is restarted where that reads something older. With a
    switch the configuration goes live inside of it.

    + engine: the engine
    + decide: from the probe's document to whether a switch is needed, and why
    + watch: from the probe's document to why the watch has to be restarted
    + request: what the probe is asked for
    + sudo: whether commands need it on this host
    """
    facts = read(request)
    if goes_with_switch(facts, engine, decide(facts)):
        host.noop(f"the configuration of {engine.name} goes live with its release")
        return
    found, why = changes([engine.config], facts["files"]), watch(facts)
    if found and found[0].unreadable:
        yield will_fail(f"{engine.config.path} cannot be looked at: {found[0].why}")
        return
    if not found and not why:
        host.noop(f"{engine.config.path} and the watch are as they should be")
        return
    restart = [f"restart of {watch_unit(engine.name)}: {'; '.join(why)}"] if why else []
    show([*describe(found, bool(state.config.DIFF)), *restart])
    argv = ["configure", engine.name, f"--seen={seen(facts, engine.name)}"]
    argv += ["--restart-watch"] if why else []

    def run(link: Link) -> None:
        answer = link.run(*program.argv(*argv), wait_s=WATCH_S, stdin=text_of(engine))
        answer.needed(f"{engine.config.path} was not written")

    yield over_link(run, sudo, "interrupted: deploy again")


@operation()
def possible(engine: DesiredEngine, decide: Decide, request: JSON) -> Commands:
    """
    Fail the host, before anything of the live engine is touched, where the switch cannot be made.

    A unit of that name that somebody else wrote, weights that are not there, GPUs that are held by
    what may not be ended.

    + engine: the engine
    + decide: from the probe's document to whether a switch is needed, and why
    + request: what the probe is asked for
    """
    facts = read(request)
    found = blockers(facts, engine) if decide(facts).now else []
    if not found:
        host.noop(f"nothing is in the way of {engine.name}")
        return
    yield will_fail("\n".join([*found, LEFT_ALONE]))


@operation()
def switched(
    engine: DesiredEngine,
    decide: Decide,
    request: JSON,
    sudo: bool = False,
) -> Commands:
    """
    Stop what the engine replaces, free its GPUs, put the release live and start it.

    Runs on the host as the transient unit sglangctl-switch.service: a lost link does not stop it.

    + engine: the engine; its release is staged
    + decide: from the probe's document to whether it is needed, and why
    + request: what the probe is asked for
    + sudo: whether commands need it on this host
    """
    facts = read(request)
    name, digest = engine.name, engine.release.digest
    decision = decide(facts)
    if not decision.needed:
        host.noop(f"{name} runs release {digest[:12]}")
        return
    if decision.held:
        show([f"restart of {name} is due: {decision}; not done: `restart: never`"])
        host.noop(f"{name} is left as it runs")
        return
    found = (
        changes([engine.config], facts["files"])
        if goes_with_switch(facts, engine, decision)
        else []
    )
    edited = edited_by_hand(engine, facts)
    for one in edited:
        keep(state.inventory.get_host(host.name), f"{one.item.path} as found", list(one.diff))
    show(
        [
            *describe([*edited, *found], bool(state.config.DIFF)),
            f"restart of {name}: {decision}",
            *plan_lines(facts, name),
            *planned(
                [
                    *changing_over(facts, name),
                    *measured_before(engine, facts),
                    *way_back(facts, name, digest, list(engine.fallbacks)),
                ]
            ),
        ]
    )
    asked = ["switch", name, f"--to={digest}", f"--reason={decision}"]
    # A first release had its configuration before it: see `configured`.
    asked += ["--config=-", f"--seen={seen(facts, name)}"]
    takes = (request.get("takes") or {}).get(name) or {}
    asked += [f"--was={takes['was']}"] if takes.get("was") else []
    asked += [f"--gone={one}" for one in takes.get("gone") or ()]

    # What is not gated after all is asked by the switch itself.
    at_gate = way(facts, name) == cutover.GATED
    asked += ["--unproven"] if at_gate else []

    def run(link: Link) -> None:
        prove(link, engine, at_gate=at_gate)
        for fallback, one in engine.fallbacks.items():
            prove(link, one, f"fallback {fallback}: ")
        ticket = new_ticket()
        argv = program.argv(*asked, f"--detach={ticket}")
        answer = link.run(*argv, wait_s=START_S, stdin=text_of(engine))
        answer.needed("the switch could not be started")
        follow_switch(link, name, ticket)

    yield over_link(run, sudo, "interrupted: the switch continues on the host; deploy again")
    forget()


def edited_by_hand(engine: DesiredEngine, facts: JSON) -> list[Change]:
    """What somebody changed in the live release or its unit, which the switch writes anew: known where
    the live release is the wanted one. Its diff is shown and goes to the report."""
    if releases(facts, engine.name).get("current") != engine.release.digest:
        return []
    unit = engine.installed_unit(facts)
    found = [change(unit, facts["files"][unit.path]), *changed_against_live(engine, facts)]
    return [one for one in found if one is not None and one.diff]


def goes_with_switch(facts: JSON, engine: DesiredEngine, decision: Decision) -> bool:
    """Whether the configuration is written by the switch: until then it speaks of what runs.

    Of an engine of which nothing is live yet it comes first: `sglangctl free` needs it.
    """
    return decision.needed and releases(facts, engine.name).get("current") is not None


def seen(facts: JSON, engine: str) -> str:
    """What the host checks under its lock: that nothing was switched since we looked."""
    return str((engine_facts(facts, engine).get("state") or {}).get("time") or "-")


def text_of(engine: DesiredEngine) -> str:
    return engine.config.content.decode()


def new_ticket() -> str:
    """Made here, so that the same call after a lost answer does not start a second switch."""
    return f"{now()}-{secrets.token_hex(4)}"


def follow_switch(link: Link, engine: str, ticket: str, at: str | None = None) -> None:
    """Print the steps of a switch as they come; HostFailed with its last line when it failed.

    `at`: the host's program; this version's by default. How the new engine's start ended goes to the
    report, and what it went back to, to the last screen: after a failure nobody asks it again.
    """
    last = ""

    said = SWITCHES.setdefault(link.host.name, {}).setdefault(engine, [])

    def tell(event: Event) -> None:
        nonlocal last
        shown = {key: cut(one, SAID_TEXT) for key in SHOWN if (one := text(event.get(key)))}
        if shown and len(said) < SAID:
            said.append({"t": event.get("t"), **shown})
        if event["kind"] == "outcome":
            record(link.host, result_of(engine, event))
        elif event.get("name") == "back":
            BACK.setdefault(link.host.name, {})[engine] = others_of(event)
        elif event.get("name") == "fallback":
            FALLBACKS.setdefault(link.host.name, {})[engine] = fallback_of(event)
        elif event.get("name") in ("switch", "end"):
            last = str(event.get("text"))
            if event.get("name") == "switch":
                say(link.host, last)

    argv = [*PYTHON, at or program.path(), "switch", engine, f"--follow={ticket}"]
    status = follow.task(link, argv, tell)
    if status == "gone":
        raise HostFailed(
            "the switch ended without a result (killed?): on the host, journalctl -u "
            f"{unit_names.SWITCH} says more; then: sglangctl switch {engine} --resume"
        )
    if status != "0":
        raise HostFailed(last or f"the switch ended with status {status}")


def way(facts: JSON, engine: str) -> str | None:
    """`gated` or `plain`, as the plan has it; None without a plan."""
    found = _cutover(facts, engine)
    return found.kind if found else None


def changing_over(facts: JSON, engine: str) -> list[str]:
    """How a switch changes over, in a line; none without a plan."""
    found = _cutover(facts, engine)
    return [escaped(str(found))] if found else []


def _cutover(facts: JSON, engine: str) -> cutover.Cutover | None:
    return cutover.Cutover.from_json(engine_facts(facts, engine, "plans").get("cutover"))


def measured_before(engine: DesiredEngine, facts: JSON) -> list[str]:
    """What a switch does with the engine that it replaces before it stops it; none where it stops
    nothing, or the release has served before."""
    plan = engine_facts(facts, engine.name, "plans")
    ends = ("units_to_stop", "containers_to_stop", "processes_to_end")
    links = releases(facts, engine.name)
    known = engine.release.digest in (links.get("known_good"), links.get("previous"))
    if known or not any(plan.get(key) for key in ends):
        return []
    return before.measured(engine.spec.acceptance)


def way_back(facts: JSON, engine: str, to: str, fallbacks: Sequence[str] = ()) -> list[str]:
    """What a switch to release `to` tries and goes back to where it fails, a line each; none without a
    plan."""
    found = engine_facts(facts, engine, "plans").get("before")
    return before.lines(before.Before.from_json(found), engine, to, fallbacks) if found else []


def plan_lines(facts: JSON, engine: str) -> list[str]:
    """What `sglangctl free` would do for this engine: exactly which units and processes; nothing
    where it would refuse (`possible` says that)."""
    plan = engine_facts(facts, engine, "plans")
    return [] if plan.get("refused") else list(plan.get("lines") or [])
