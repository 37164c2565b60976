"""What came back beside an engine that runs, and what is done about it."""

from __future__ import annotations

from typing import Any

import pytest

from roles.switch.drift import drift_of

RUNS = {"ActiveState": "active", "UnitFileState": "enabled"}
DOWN = {"ActiveState": "inactive", "UnitFileState": "disabled"}


def of(replaced: dict[str, Any] | None, unit: dict[str, Any] | None = None) -> list[str]:
    about = {"unit": unit or RUNS, "replaces": {"vllm.service": replaced}}
    return drift_of(about, "chat").lines


@pytest.mark.parametrize(
    ("replaced", "words"),
    [
        (RUNS, "runs and is enabled again: stop and disable it"),
        ({**RUNS, "UnitFileState": "disabled"}, "runs again: stop and disable it"),
        ({**RUNS, "ActiveState": "activating"}, "runs and is enabled again"),
        ({**DOWN, "UnitFileState": "enabled"}, "is enabled again: disable it"),
    ],
)
def test_a_replaced_unit_that_came_back(replaced: dict[str, Any], words: str) -> None:
    (line,) = of(replaced)
    assert line.startswith("vllm.service, which chat replaces, ")
    assert words in line


@pytest.mark.parametrize(
    "replaced",
    [DOWN, {**DOWN, "ActiveState": "failed"}, {**DOWN, "UnitFileState": ""}, {}, None],
)
def test_what_is_down_is_no_drift(replaced: dict[str, Any] | None) -> None:
    assert of(replaced) == []
    assert drift_of({"unit": RUNS, "replaces": None}, "chat").lines == []


def test_a_unit_of_ours_that_was_disabled_is_enabled() -> None:
    found = drift_of({"unit": {**RUNS, "UnitFileState": "disabled"}}, "chat")
    assert found.disabled == ("sglang-chat.service does not start at boot: enable it",)
    assert found.replaced == ()


def test_a_unit_that_a_failed_switch_disabled_stays_disabled() -> None:
    about = {"unit": {**RUNS, "UnitFileState": "disabled"}, "state": {"phase": "failed"}}
    assert drift_of(about, "chat").lines == []
