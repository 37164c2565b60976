"""What is staged for a switch: its fallbacks, and the last check of it, with the staged engine's own
parser and imports, on the host."""

from __future__ import annotations

from pyinfra.context import host

from roles.engine.desired import DesiredEngine
from roles.engine.operations import stage
from roles.host.managed import text_diff
from roles.inventory import render
from roles.remote import program
from roles.remote.failing import HostFailed, say
from roles.remote.link import Answer, Link
from roles.remote.operation import Commands, operation, read, show
from roles.remote.shape import PREFLIGHT, WrongShape, check, parsed
from roles.remote.snapshot import JSON, releases
from roles.remote.steps import signs_of_life
from roles.report.last_screen import LEFT_ALONE
from roles.switch.decision import Decide
from roles.switch.values import of_diff
from sglangctl.diagnosis.finding import FAIL, INFO, Finding
from sglangctl.preflight.asking import LIMIT_S
from sglangctl.preflight.text import sentence

WAIT_S = LIMIT_S + 180.0
"""For systemd to start and end it, beside its own limit."""


@operation()
def staged_fallbacks(engine: DesiredEngine, decide: Decide, request: JSON) -> Commands:
    """
    Write the releases of an engine's fallbacks beside the others, for the switch that needs them.

    + engine: the engine
    + decide: from the probe's document to whether a switch is needed, and why
    + request: what the probe is asked for
    """
    facts = read(request)
    there = releases(facts, engine.name).get("staged") or []
    found = {name: one for name, one in engine.fallbacks.items() if one.release.digest not in there}
    if not found or not decide(facts).needed:
        host.noop(f"no fallback of {engine.name} is to be staged")
        return
    show(
        [
            f"fallback {name}, release {one.release.digest[:12]}: {'; '.join(differing(engine, one))}"
            for name, one in found.items()
        ]
    )
    for one in found.values():
        yield stage(one)


def differing(engine: DesiredEngine, other: DesiredEngine) -> list[str]:
    """`attention-backend fa3 -> triton` for each value in which two releases of an engine differ."""
    ours = engine.live_files
    files = {name: one for name, one in other.live_files.items() if name != "manifest.json"}
    return list(
        dict.fromkeys(
            text
            for name, one in files.items()
            for text in of_diff(
                text_diff(one.path, ours[name].masked if name in ours else "", one.masked)
            )
        )
    )


def prove(link: Link, engine: DesiredEngine, what: str = "", at_gate: bool = False) -> None:
    """HostFailed, before anything is stopped, where the staged engine could not start; `what` begins
    each sentence about it. `at_gate`: its parser and its imports are left to its launch gate."""
    argv = ["preflight", "--spec=-", "--gate=staged", f"--release={engine.release.digest}"]
    argv += ["--at-gate"] if at_gate else []
    doing = "what it finds on the host" if at_gate else "its parser and its imports"
    with signs_of_life(link.host, f"{engine.name}: {doing}"):
        answer = link.run(
            *program.argv(*argv, "--json"),
            wait_s=WAIT_S,
            stdin=render.engine_json(engine.spec).decode(),
        )
    found = findings_of(answer)
    for one in found:
        if one.level not in (FAIL, INFO):
            say(link.host, f"{one.level}: {what}{sentence(one)}", fg="yellow")
    wrong = [what + sentence(one) for one in found if one.level == FAIL]
    if wrong:
        raise HostFailed("\n".join([*wrong, LEFT_ALONE]))


def findings_of(answer: Answer) -> list[Finding]:
    """What `sglangctl preflight --json` found; HostFailed where it could not look."""
    try:
        document = check(parsed("\n".join(answer.lines)), PREFLIGHT)
    except WrongShape:
        said = "\n".join(answer.errors) or "it said nothing"
        raise HostFailed(f"the staged engine could not be checked: {said}\n{LEFT_ALONE}") from None
    return [Finding.from_json(one) for one in document["findings"]]
