"""What stands last on the screen when pyinfra asks whether to go on."""

from __future__ import annotations

import sys
from types import SimpleNamespace

import pytest

from roles.entry import connecting


def test_the_plan_stands_right_above_the_question(monkeypatch: pytest.MonkeyPatch) -> None:
    """pyinfra's own table and remarks come between a host's preparation and its question."""
    said: list[str] = []
    cli = SimpleNamespace(_do_confirm=lambda text: bool(said.append(text)) or True)
    monkeypatch.setitem(sys.modules, "pyinfra_cli.cli", cli)
    monkeypatch.setattr(connecting.Plan, "print_all", lambda: said.append("the plan"))
    monkeypatch.setattr(connecting.Plan, "before_asking", False)
    connecting.tell_before_asking()
    connecting.tell_before_asking()  # once, however often an inventory is read
    assert cli._do_confirm("Detected changes displayed above") and cli._do_confirm("another")
    assert said == ["the plan", "Detected changes displayed above", "another"]
    assert connecting.Plan.before_asking


def test_without_pyinfras_program_it_is_told_as_before(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "pyinfra_cli.cli", raising=False)
    monkeypatch.setattr(connecting.Plan, "before_asking", False)
    connecting.tell_before_asking()
    assert not connecting.Plan.before_asking
