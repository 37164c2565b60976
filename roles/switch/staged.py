"""The last check before a switch: the staged engine's own parser and imports, on the host."""

from __future__ import annotations

from roles.engine.desired import DesiredEngine
from roles.remote import program
from roles.remote.failing import HostFailed, say
from roles.remote.link import Answer, Link
from roles.remote.shape import PREFLIGHT, WrongShape, check, parsed
from roles.remote.steps import signs_of_life
from sglangctl.diagnosis.finding import FAIL, INFO, Finding
from sglangctl.preflight.asking import LIMIT_S
from sglangctl.preflight.text import sentence

WAIT_S = LIMIT_S + 180.0
"""For systemd to start and end it, beside its own limit."""
LEFT_ALONE = "what runs now was left alone"


def prove(link: Link, engine: DesiredEngine) -> None:
    """HostFailed, before anything is stopped, where the staged engine could not start."""
    argv = ["preflight", "--spec=-", "--gate=staged", f"--release={engine.release.digest}"]
    with signs_of_life(link.host, f"{engine.name}: its parser and its imports"):
        answer = link.run(
            *program.PYTHON,
            program.path(),
            *argv,
            "--json",
            wait_s=WAIT_S,
            stdin=engine.config.content.decode(),
        )
    found = findings_of(answer)
    for one in found:
        if one.level not in (FAIL, INFO):
            say(link.host, f"{one.level}: {sentence(one)}", fg="yellow")
    wrong = [sentence(one) for one in found if one.level == FAIL]
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
