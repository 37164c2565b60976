"""Whatever goes wrong on one host, with us or with pyinfra, ends no other host's run."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pyinfra.api import State
from pyinfra.api.operations import run_ops
from pyinfra.api.state import StateStage
from pyinfra.connectors import local, ssh

from roles.remote import asking, failing, snapshot
from roles.remote.operation import Commands, operation
from tests.support.on_this_machine import deploying


@pytest.fixture
def state(monkeypatch: pytest.MonkeyPatch) -> Iterator[State]:
    """This machine as a host, and another one that goes on."""
    monkeypatch.setattr(failing, "MESSAGES", {})
    for module in (local, ssh):
        name = "execute_command_with_sudo_retry"
        monkeypatch.setattr(module, name, getattr(module, name))
    with deploying("another", check_for_changes=True) as made:
        yield made


def told() -> str:
    return "\n".join(failing.MESSAGES.get("@local", []))


def failed(state: State) -> list[str]:
    return [host.name for host in state.failed_hosts]


def test_a_defect_in_deploy_code(state: State) -> None:
    @failing.contained
    def stage() -> None:
        raise KeyError("x")

    stage()
    assert failed(state) == ["@local"]
    assert "internal error: KeyError('x')" in told()


@operation()
def broken(when: str) -> Commands:
    """An operation with a defect in one phase."""
    from pyinfra.context import state

    if state.is_executing == (when == "execute"):
        raise KeyError(when)
    yield from ()


@pytest.mark.parametrize("when", ["prepare", "execute"])
def test_a_defect_in_an_operation(state: State, when: str) -> None:
    state.check_for_changes = True
    state.set_stage(StateStage.Prepare)
    broken(when=when)
    state.set_stage(StateStage.Execute)
    run_ops(state)
    assert failed(state) == ["@local"]
    assert f"internal error: KeyError('{when}')" in told()


def test_the_last_host_s_failure_does_not_look_like_a_crash(state: State) -> None:
    state.active_hosts = {state.inventory.get_host("@local")}
    with pytest.raises(failing.NobodyLeft) as caught:
        failing.fail_host("no")
    caught.value.__traceback__ = caught.tb  # as gevent does
    assert caught.value.__traceback__ is None  # from which pyinfra takes a file and a line
    assert "No hosts remaining" in str(caught.value)


@pytest.mark.parametrize(
    ("script", "said"),
    [
        ("echo 'sudo: a password is required' >&2; exit 1", "sudo on this host wants a password"),
        ("echo 'sudo-rs: interactive authentication is required' >&2; exit 1", "wants a password"),
        ("echo 'sh: 1: sudo: not found' >&2; exit 127", "sudo is not on this host"),
        ("echo 'This account is not available.'; exit 1", "This account is not available."),
        ("echo hello", "did not answer with JSON"),
        ("exit 3", "ran no command and said: nothing"),
        ("printf '\\n== sglangctl probe\\n'; exit 1", "ended without output"),
        ("true", "printed nothing"),
    ],
)
def test_what_is_told_of_a_host_that_cannot_be_read(
    state: State, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, script: str, said: str
) -> None:
    asking.guard()
    monkeypatch.setattr(snapshot.HostProbe, "command", lambda self, from_input=False: script)
    document: Any = snapshot.read(from_input=True)
    assert document is None
    assert failed(state) == ["@local"]
    assert said in told()


def test_what_the_login_shell_prints_first_is_left_out() -> None:
    good = '{"v": 1, "time": "2026-11-29T12:00:00Z", "files": {}, "users": {}}'
    noise = ["Welcome to gpu7", "{}", "", snapshot.BEGINS]
    assert snapshot.HostProbe().process([*noise, good])["v"] == 1
