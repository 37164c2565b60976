"""A host without engines, which is there for its Prometheus: no stage of the other deploys has work on it."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from roles.inventory.model import HostSpec
from roles.stages import desired, existing
from roles.stages.fitness import NO_ENGINE


@pytest.fixture
def said(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    lines: list[str] = []
    data = {"sglang_host": HostSpec("h", ()), "sglang_engines": []}
    inventory = SimpleNamespace(get_host=lambda name: name)
    for module in (desired, existing):
        monkeypatch.setattr(module, "host", SimpleNamespace(name="h", data=data))
        monkeypatch.setattr(module, "state", SimpleNamespace(inventory=inventory))
        monkeypatch.setattr(module, "say", lambda target, line: lines.append(line))
        monkeypatch.setattr(module, "inventory_is_right", lambda deploy, need: True)
        monkeypatch.setattr(module, "host_is_fit", lambda facts, deploy: True)
        monkeypatch.setattr(module, "snapshot", lambda request: {"engines": {}})
    return lines


def test_nothing_is_prepared_on_it(said: list[str]) -> None:
    assert desired.desired_host("sglang") is None
    assert said == [NO_ENGINE]


def test_engines_that_have_left_the_inventory_are_still_looked_at(
    said: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    facts: dict[str, Any] = {"engines": {"old": {}}}
    monkeypatch.setattr(desired, "snapshot", lambda request: facts)
    found = desired.desired_host("sglang")
    assert found is not None and found.gone == ("old",) and said == []


@pytest.mark.parametrize(
    ("deploy", "asked"), [("verify", False), ("collective", False), ("stop", True)]
)
def test_no_engine_is_asked_for_its_proof(said: list[str], deploy: str, asked: bool) -> None:
    found = existing.existing_host(deploy)
    assert (found is not None) == asked
    assert said == ([] if asked else [NO_ENGINE])
