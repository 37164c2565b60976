"""What was found on the host that is in the way of a switch, before anything is ended. Pure."""

from __future__ import annotations

from roles.engine.desired import DesiredEngine
from roles.remote.snapshot import JSON, engine_facts
from sglangctl.diagnosis.finding import FAIL, Finding
from sglangctl.preflight.text import sentence
from sglangctl.switch.cutover import Cutover


def findings(facts: JSON, engine: DesiredEngine) -> list[Finding]:
    """What the probe's preflight found of an engine; nothing where it could not look."""
    return [Finding.from_json(one) for one in (facts.get("preflight") or {}).get(engine.name) or []]


def blockers(facts: JSON, engine: DesiredEngine) -> list[str]:
    """Everything for which a switch must not even be tried, each with what is to be done."""
    found = [sentence(one) for one in findings(facts, engine) if one.level == FAIL]
    way = Cutover.from_json(engine_facts(facts, engine.name, "plans").get("cutover"))
    if way is not None and way.refused(engine.spec.cutover):
        found.append(f"`cutover: gated` is not possible ({way.reason}): set `cutover: auto`")
    return found
