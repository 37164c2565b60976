"""The look at an engine's model and port before each of its starts, and what to say where it stopped one.

SGLang serves with tensors missing (measured with 0.5.16), so a start must not rest on its word. That its
port is taken it notices only after the whole load.
"""

from __future__ import annotations

import time

from sglangctl.diagnosis.finding import FAIL, Finding
from sglangctl.engine import port_owner
from sglangctl.proc.as_user import NoAnswer
from sglangctl.state.config import EngineConfig
from sglangctl.state.paths import Paths
from sglangctl.systemd import unit_failure
from sglangctl.systemd.unit import Unit
from sglangctl.systemd.unit_failure import Why
from sglangctl.weights import look

LOOK_S = 0.25


def faults(engine: EngineConfig, paths: Paths) -> list[Finding]:
    """What is wrong with the folders of model and drafter and must stop a start; reads nothing of a
    folder that was found complete and has not changed. As look.model: PermissionError, KeyError,
    NoAnswer."""
    found: list[Finding] = []
    for target in look.targets(engine):
        model = look.model(target.folder, engine.user, tokenizer=target.tokenizer, paths=paths)
        found += model.findings
    ignored = engine.preflight.ignore
    return [one for one in found if one.level == FAIL and one.id not in ignored]


def port_taken(engine: EngineConfig, wait_s: float = 0.0) -> str | None:
    """Who holds the port of an engine that does not run, still after `wait_s`; None for nobody, and
    where the inventory ignores the finding."""
    if "port-taken" in engine.preflight.ignore:
        return None
    end = time.monotonic() + wait_s
    while True:
        owner = port_owner.find(engine.port, engine.listen, ())
        if owner is None:
            return None
        if time.monotonic() >= end:
            named = owner.pid and port_owner.named(owner.pid)
            return named or "a process of another user"
        time.sleep(LOOK_S)


def why(engine: EngineConfig, unit: Unit, paths: Paths) -> Why | None:
    """As unit_failure.why; of a start that ended before it had a main process, what is wrong with its
    weights or who has its port."""
    found = unit_failure.why(engine.unit, unit.result, unit.exit_status)
    if found is None or not unit_failure.before_main(unit.result, unit.exit_status):
        return found
    try:
        wrong = faults(engine, paths)
    except (PermissionError, KeyError, NoAnswer):
        return found  # somebody who may not look with the engine's rights
    again = f"systemctl reset-failed {engine.unit} && systemctl start {engine.unit}"
    if not wrong:
        by = port_taken(engine)
        if by is None:
            return found
        return Why(
            f"{engine.unit} was not started: port {engine.port} is held by {by}",
            f"end that, or choose another `port` and deploy; then: {again}",
        )
    more = f" (and {len(wrong) - 1} more faults)" if len(wrong) > 1 else ""
    fix = wrong[0].fix or "put the files right"
    return Why(
        f"{engine.unit} was not started, its model is not complete: {wrong[0].seen}{more}",
        f"{fix}; then: {again}; all faults: sglangctl weights --engine {engine.name}",
    )
