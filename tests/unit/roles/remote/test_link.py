"""Links: what is passed on, and how long a host without an answer is asked. Cut links are in
tests/container/test_follow.py."""

from __future__ import annotations

from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import gevent
import pytest

from roles.remote import link
from roles.remote.link import Link, LinkLost


@dataclass
class Host:
    """A host whose answers come after these seconds, one a command (the last one again)."""

    delays: list[float]
    ok: bool = True
    calls: list[tuple[str, dict[str, Any]]] = field(default_factory=list)
    connector: object = None

    def run_shell_command(self, command: Any, **arguments: Any) -> tuple[bool, Any]:
        self.calls.append((command.get_raw_value(), arguments))
        gevent.sleep(self.delays.pop(0) if len(self.delays) > 1 else self.delays[0])
        return self.ok, SimpleNamespace(stdout_lines=["out"], stderr_lines=["", "err"])


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(link, "ANSWER_S", 0.1)
    monkeypatch.setattr(link, "UNANSWERED_S", 0.5)
    monkeypatch.setattr(link, "PAUSE_S", 0.01)


def made(host: Host, said: list[str], **arguments: Any) -> Link:
    state: Any = SimpleNamespace(print_input=False)
    target: Any = host
    return Link(state, target, said.append, arguments)


def test_words_are_data() -> None:
    host = Host([0.0])
    made(host, []).run("sglangctl", "journal", "a; reboot", "$(id)", "--wait", "")
    assert host.calls[0][0] == "sglangctl journal 'a; reboot' '$(id)' --wait ''"


def test_who_runs_it_is_passed_on_and_what_would_break_it_is_not() -> None:
    host = Host([0.0])
    made(host, [], _sudo=True, _sudo_user="x", _timeout=1, _stdin="y", name="n", _if=[]).run("true")
    assert host.calls[0][1] == {"print_input": False, "_sudo": True, "_sudo_user": "x"}


def test_a_command_that_fails_is_an_answer() -> None:
    said: list[str] = []
    answer = made(Host([0.0], ok=False), said).run("false")
    assert (answer.ok, answer.lines, answer.errors) == (False, ["out"], ["err"])
    assert said == []


def test_no_answer_is_asked_for_again() -> None:
    said: list[str] = []
    host = Host([9.0, 9.0, 0.0])
    assert made(host, said).run("true").ok
    assert len(host.calls) == 3
    assert ["lost" in line and "0.1 s" in line for line in said] == [True, False, True, False]
    assert ["back" in line for line in said] == [False, True, False, True]


def test_a_command_has_its_own_time() -> None:
    host = Host([0.3])
    assert made(host, []).run("true", wait_s=1.0).ok and len(host.calls) == 1


def test_a_host_that_never_answers_is_given_up() -> None:
    host = Host([9.0])
    with gevent.Timeout(5), pytest.raises(LinkLost, match="has answered nothing for"):
        made(host, []).run("true")
    assert 4 <= len(host.calls) <= 8
