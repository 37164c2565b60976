"""All that a preflight finds of a host, and nothing else."""

from __future__ import annotations

from pyinfra.context import host, state

from roles.remote.failing import contained, fail_host, say
from roles.stages.desired import DesiredHost
from roles.stages.preflight_check import NOTHING_TOUCHED, in_the_way
from roles.switch.decision import Decision
from sglangctl.diagnosis.finding import FAIL, WARN
from sglangctl.preflight import text
from sglangctl.preflight.catalog import BEFORE

COLOURS = {FAIL: "red", WARN: "yellow"}


@contained
def report_preflight(desired: DesiredHost) -> None:
    """Print the findings of each engine as if it were to be switched; fail the host for those that
    would stop it."""
    facts = desired.facts()
    if facts is None:
        return
    target = state.inventory.get_host(host.name)
    stopped: list[tuple[str, str]] = []
    for engine in desired.engines:
        found = in_the_way(facts, engine, lambda _: Decision(("asked",)))
        colour = None
        for line in text.lines(engine.name, BEFORE, found):
            # What follows a finding is indented further, and has its colour.
            if not line.startswith("    "):
                colour = COLOURS.get(line.split()[0])
            say(target, line, fg=colour)
        stopped += [(engine.name, one.seen) for one in found if one.level == FAIL][:1]
    if stopped:
        names = ", ".join(name for name, _ in stopped)
        fail_host(f"preflight: {names} would fail: {stopped[0][1]}; {NOTHING_TOUCHED}")
