"""What a switch would end, from the plan that is there already."""

from __future__ import annotations

from pathlib import Path

import pytest

from sglangctl.state.paths import Paths
from sglangctl.switch import present
from tests.support.free_plans import KIMI, plan, unit


@pytest.mark.parametrize(("active", "runs"), [("active", True), ("inactive", False)])
def test_systemd_is_not_asked_again_for_what_the_plan_has_seen(
    active: str, runs: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A probe makes a plan for each engine: it was one more systemctl for each."""
    monkeypatch.setattr(present, "find", lambda unit: pytest.fail(f"asked for {unit}"))
    made = plan(units=(unit(KIMI.unit, ActiveState=active),), stop=True)
    assert present.here(KIMI, made, (), Paths(tmp_path)).was_running is runs
