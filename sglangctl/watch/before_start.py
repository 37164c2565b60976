"""The look at an engine's model before each of its starts, and what to say where it stopped one.

SGLang serves with tensors missing (measured with 0.5.16), so a start must not rest on its word.
"""

from __future__ import annotations

from sglangctl.diagnosis.finding import FAIL, Finding
from sglangctl.proc.as_user import NoAnswer
from sglangctl.state.config import EngineConfig
from sglangctl.state.paths import Paths
from sglangctl.systemd import unit_failure
from sglangctl.systemd.unit import Unit
from sglangctl.systemd.unit_failure import Why
from sglangctl.weights import look


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


def why(engine: EngineConfig, unit: Unit, paths: Paths) -> Why | None:
    """As unit_failure.why; of a start that ended before it had a main process, the weights' fault
    where they have one."""
    found = unit_failure.why(engine.unit, unit.result, unit.exit_status)
    if found is None or not unit_failure.before_main(unit.result, unit.exit_status):
        return found
    try:
        wrong = faults(engine, paths)
    except (PermissionError, KeyError, NoAnswer):
        return found  # somebody who may not look with the engine's rights
    if not wrong:
        return found
    more = f" (and {len(wrong) - 1} more faults)" if len(wrong) > 1 else ""
    fix = wrong[0].fix or "put the files right"
    return Why(
        f"{engine.unit} was not started, its model is not complete: {wrong[0].seen}{more}",
        f"{fix}; then: systemctl reset-failed {engine.unit} && systemctl start {engine.unit}; all faults: "
        f"sglangctl weights --engine {engine.name}",
    )
