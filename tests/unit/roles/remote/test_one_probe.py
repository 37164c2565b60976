"""How often a host is asked: once where nothing is planned first (-y), and again after a change."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from pyinfra.api import State

from roles.remote import failing, program, snapshot
from roles.remote.snapshot import RUNS, HostProbe
from tests.support.on_this_machine import deploying

GOOD = '{"v": 1, "time": "2026-11-29T12:00:00Z", "files": {}, "users": {}}'


class Asked(list[bool]):
    """One entry a question: whether the program was sent along."""


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> Asked:
    """The host's answers are those of a program that is there."""
    found = Asked()

    def command(self: Any, from_input: bool = False) -> str:
        found.append(from_input)
        return f"cat >/dev/null; echo '{GOOD}'"

    monkeypatch.setattr(HostProbe, "command", command)
    return found


@pytest.fixture
def state(monkeypatch: pytest.MonkeyPatch) -> Iterator[State]:
    monkeypatch.setattr(failing, "MESSAGES", {})
    with deploying() as made:
        yield made


@pytest.mark.parametrize(("plan", "questions"), [(False, 1), (True, 2)])
def test_once_unless_somebody_reads_a_plan_in_between(
    state: State, asked: Asked, plan: bool, questions: int
) -> None:
    state.check_for_changes = plan
    state.is_executing = False
    assert snapshot.snapshot({}) is snapshot.snapshot({})
    state.is_executing = True
    assert snapshot.snapshot({}) is not None and snapshot.snapshot({}) is not None
    assert asked == [False] * questions


def test_after_a_change_it_is_asked_again(state: State, asked: Asked) -> None:
    state.is_executing = False
    before = snapshot.snapshot({})
    state.is_executing = True
    assert snapshot.snapshot({}) is before
    snapshot.forget()
    assert snapshot.snapshot({}) is not before
    assert asked == [False, False]
    # The end of the run still tells what was there before it.
    assert snapshot.prepared(state.inventory.get_host("@local")) is before


@pytest.mark.parametrize("content", [b"", b"#!/usr/bin/env python3\ncut off"])
def test_a_program_that_was_cut_off_is_sent_again(
    state: State, monkeypatch: pytest.MonkeyPatch, tmp_path: Any, content: bytes
) -> None:
    file = tmp_path / "cut.pyz"
    file.write_bytes(content)
    monkeypatch.setattr(program, "path", lambda: str(file))
    state.is_executing = False
    document = snapshot.snapshot({})
    assert document is not None and document[RUNS] is False
    file.write_bytes(program.archive())
    state.check_for_changes = True
    state.is_executing = True
    document = snapshot.snapshot({})
    assert document is not None and document[RUNS] is True


def test_what_the_program_itself_refuses_is_no_damage(
    state: State, monkeypatch: pytest.MonkeyPatch, tmp_path: Any
) -> None:
    file = tmp_path / "whole.pyz"
    file.write_bytes(program.archive())
    monkeypatch.setattr(program, "path", lambda: str(file))
    state.active_hosts = {*state.inventory, object()}  # type: ignore[arg-type]
    state.is_executing = False
    assert snapshot.snapshot({"nonsense": 1}) is None
    assert "unknown key 'nonsense'" in failing.MESSAGES["@local"][0]


def test_each_host_gets_its_own_settings_and_its_own_input(state: State) -> None:
    (host,) = state.inventory

    def arguments(text: str) -> dict[str, Any]:
        return snapshot.for_connector(state, host, {"_timeout": 5, "_stdin": [text]})

    plain = arguments("one")
    assert (plain["_stdin"], plain["_timeout"], plain["_sudo"]) == (["one"], 5, False)
    assert arguments("two")["_stdin"] == ["two"]
    host.data._sudo = True
    assert arguments("one")["_sudo"] is True
    host.data._sudo = False
    state.config.SUDO = True
    assert arguments("one") == plain
    del host.data.override_datas["_sudo"]
    assert arguments("one")["_sudo"] is True
