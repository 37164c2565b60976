"""The operation that puts a staged release live, as one transaction on the host."""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable, Generator

from pyinfra.api import FunctionCommand, Host, State, StringCommand, operation
from pyinfra.api.command import QuoteString
from pyinfra.context import host

from roles.failing import HostFailed, checked, failing, say
from roles.host import program
from roles.host.operations import UNREAD, show
from roles.host.snapshot import JSON, forget, snapshot
from roles.job import EngineJob
from roles.readiness.interrupt import Interrupted, interruptible
from roles.readiness.link import Link, LinkLost
from roles.switch.decision import Decision
from sglangctl.ours import HEAD

PYTHON = ("python3", "-I", "-S")
POLL_S = 10.0


@operation()
def possible(
    job: EngineJob, decide: Callable[[JSON], Decision], request: JSON
) -> Generator[FunctionCommand, None, None]:
    """
    Fail the host, before anything of the live engine is touched, where the switch cannot be made.

    A unit of that name that somebody else wrote, weights that are not there, GPUs that are held by
    what may not be ended.

    + job: the engine's job
    + decide: from the probe's document to whether a switch is needed, and why
    + request: what the probe is asked for
    """
    facts = snapshot(request)
    if facts is None:
        yield failing(UNREAD)
        return
    obstacle = blocked(facts, job) if decide(facts).needed else None
    if obstacle is None:
        host.noop(f"nothing is in the way of {job.name}")
        return
    show([f"will fail: {obstacle}"])
    yield failing(obstacle)


@operation()
def watch_restarted(
    engine: str, reasons: Callable[[JSON], list[str]], request: JSON
) -> Generator[StringCommand | FunctionCommand, None, None]:
    """
    Restart an engine's watch where it runs with something older than what is there now.

    The engine itself goes on: only the watch reads these files.

    + engine: the engine's name
    + reasons: from the probe's document to why it has to be restarted
    + request: what the probe is asked for
    """
    facts = snapshot(request)
    if facts is None:
        yield failing(UNREAD)
        return
    unit = f"sglang-watch@{engine}.service"
    why = reasons(facts)
    if not why:
        host.noop(f"{unit} is as it should be")
        return
    show([f"restart of {unit}: {'; '.join(why)}"])
    yield StringCommand("systemctl daemon-reload && systemctl restart --", QuoteString(unit))


@operation()
def switched(
    job: EngineJob,
    decide: Callable[[JSON], Decision],
    request: JSON,
    sudo: bool = False,
    policy: str = "declared",
) -> Generator[FunctionCommand, None, None]:
    """
    Stop what the engine replaces, free its GPUs, put the release live and start it.

    Runs on the host as the transient unit sglangctl-switch.service: a lost link is harmless.

    + job: the engine's job; its release is staged
    + decide: from the probe's document to whether it is needed, and why
    + request: what the probe is asked for
    + sudo: whether commands need it on this host
    + policy: what `sglangctl free` may end
    """
    facts = snapshot(request)
    if facts is None:
        yield failing(UNREAD)
        return
    engine, digest = job.name, job.release.digest
    decision = decide(facts)
    if not decision.needed:
        host.noop(f"{engine} runs release {digest[:12]}")
        return
    show([f"restart of {engine}: {decision}", *plan_lines(facts, engine)])

    def run(state: State, host: Host) -> None:
        link = Link(
            state, host, lambda line: say(host, line, fg="yellow"), {"_sudo": True} if sudo else {}
        )
        started = ["switch", engine, f"--to={digest}", f"--policy={policy}", f"--reason={decision}"]
        # Made here, so that the same call after a lost answer does not start a second switch.
        ticket = f"{time.strftime('%Y%m%dT%H%M%SZ', time.gmtime())}-{secrets.token_hex(4)}"
        try:
            with interruptible():
                answer = link.run(*PYTHON, program.path(), *started, f"--detach={ticket}")
                if not answer.ok:
                    raise HostFailed("\n".join(answer.errors) or "the switch could not be started")
                follow_switch(link, host, engine, ticket)
        except LinkLost as lost:
            raise HostFailed(str(lost)) from None
        except Interrupted:
            raise HostFailed("interrupted: the switch goes on on the host; deploy again") from None

    yield FunctionCommand(checked(run), (), {})
    forget()


def follow_switch(link: Link, host: Host, engine: str, ticket: str) -> None:
    """Print the steps of a switch as they come; HostFailed with its last words when it failed."""
    offset = "0"
    while True:
        answer = link.run(
            *PYTHON,
            program.path(),
            *("switch", engine, f"--follow={ticket}", f"--offset={offset}", f"--wait={POLL_S:g}"),
            wait_s=POLL_S,
        )
        if not answer.ok or not answer.lines:
            raise HostFailed("\n".join(answer.errors) or "the switch cannot be followed any more")
        *lines, last = answer.lines
        _, offset, status = last.split()
        if status not in ("-", "0"):
            raise HostFailed("\n".join(lines) or f"the switch ended with status {status}")
        for line in lines:
            say(host, line)
        if status == "0":
            return


def blocked(facts: JSON, engine: EngineJob) -> str | None:
    """Why a switch must not even be tried, and what is to be done."""
    unit = facts["files"].get(engine.installed_unit.path) or {}
    text = unit.get("text")
    if unit.get("kind") == "link" or (text is not None and not text.startswith(HEAD)):
        return (
            f"{engine.installed_unit.path} was not made by sglang-provision: name the engine "
            "otherwise, or move that file away"
        )
    for key, path in engine.weights.items():
        kind = (facts["files"].get(path) or {}).get("kind")
        if kind not in ("directory", "file", "link"):
            return (
                f"{key} {path} is not on the host ({kind}): put it there or correct the inventory; "
                "what runs now was left alone"
            )
    plan = (facts.get("plans") or {}).get(engine.name) or {}
    if plan.get("refused"):
        return "\n".join(plan.get("lines") or ["the GPUs are held by what may not be ended"])
    return too_few_gpus(facts, engine) or port_taken(facts, engine, plan)


def too_few_gpus(facts: JSON, engine: EngineJob) -> str | None:
    """The host has fewer GPUs than ranks are asked for (where it can tell its GPUs)."""
    gpus = facts.get("gpus")
    if gpus is None or engine.spec.gpus != "all" or engine.spec.flags.get("device") == "cpu":
        return None
    if engine.spec.tensor_parallel <= len(gpus):
        return None
    return (
        f"tensor_parallel is {engine.spec.tensor_parallel} and the host has {len(gpus)} GPUs: "
        "what runs now was left alone"
    )


def port_taken(facts: JSON, engine: EngineJob, plan: JSON) -> str | None:
    """Somebody listens on the engine's port who is there after the switch too. SGLang itself
    notices that only after the whole load."""
    ending = {pid for step in plan.get("units_to_stop") or [] for pid in step["pids"]}
    ending |= {pid for step in plan.get("containers_to_stop") or [] for pid in step["pids"]}
    ending |= {holder["pid"] for holder in plan.get("processes_to_end") or []}
    units = {engine.spec.unit, *engine.spec.replaces}
    for listener in facts.get("listening") or []:
        if listener["port"] != engine.spec.port:
            continue
        for owner in listener.get("owners") or []:
            if owner["pid"] not in ending and owner.get("unit") not in units:
                unit = owner.get("unit") or "no unit"
                return (
                    f"port {engine.spec.port} is held by {owner['name']} (pid {owner['pid']}, "
                    f"{unit}): choose another `port`, or name what it belongs to in `replaces`; "
                    "what runs now was left alone"
                )
    return None


def plan_lines(facts: JSON, engine: str) -> list[str]:
    """What `sglangctl free` would do for this engine: exactly which units and processes."""
    plans: JSON = facts.get("plans") or {}
    plan = plans.get(engine) or {}
    return list(plan.get("lines") or [])
