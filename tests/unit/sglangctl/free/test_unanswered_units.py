"""systemd is the init, and systemctl does not answer: nothing is stopped, started or forgotten."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pytest

from sglangctl import cli, free
from sglangctl.free import escalation
from sglangctl.free.text import plan_document, plan_lines
from sglangctl.gpu import gpus
from sglangctl.proc import open_files
from sglangctl.state import release
from sglangctl.state.config import HostConfig
from sglangctl.state.paths import Paths
from sglangctl.switch import transaction
from sglangctl.switch.journal import Record, look_at
from sglangctl.systemd import systemctl
from sglangctl.util.errors import Failed
from tests.support.engine_config import ENGINE
from tests.support.free_plans import plan as made_plan
from tests.support.free_plans import unit
from tests.support.holding import devices, holding

OLD = "vllm-old.service"
KIMI = replace(ENGINE, replaces=(OLD,))
SILENT = '#!/bin/sh\necho "$*" >>{calls}\n[ $1 = show ] && exit 1\nexit 0\n'
Told = Callable[[], list[str]]

pytestmark = pytest.mark.skipif(os.getuid() != 0, reason="freeing needs root")


@pytest.fixture
def told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Told:
    """A systemctl whose `show` fails, as it does when it runs out of time. Answers what else it
    was asked to do."""
    program, calls = tmp_path / "bin/systemctl", tmp_path / "calls"
    program.parent.mkdir()
    program.write_text(SILENT.format(calls=calls))
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{program.parent}:{os.environ['PATH']}")
    monkeypatch.setattr(systemctl, "booted", lambda: True)
    monkeypatch.setattr(open_files, "DEVICES", devices(tmp_path))
    monkeypatch.setattr(gpus, "read", lambda: gpus.Reading(None, None, "no driver in this test"))
    monkeypatch.setenv("SGLANGCTL_ROOT", str(tmp_path / "root"))
    Paths().units.mkdir(parents=True)
    Paths().engine_json("x").parent.mkdir(parents=True)
    Paths().engine_state(KIMI.name).mkdir(parents=True)

    def asked() -> list[str]:
        lines = calls.read_text().splitlines() if calls.exists() else []
        return [line for line in lines if not line.startswith("show ")]

    return asked


def test_a_plan_refuses_and_says_what_to_do(told: Told) -> None:
    with holding(open_files.DEVICES, "0", ["VLLM::Worker"]) as child:
        plan = free.plan(KIMI, HostConfig(), [], policy="all", stop=True)
        assert plan.refused and plan.blind
        lines = "\n".join(plan_lines(plan))
        assert lines.startswith("refused, nothing is changed: ")
        assert f"cannot look at {KIMI.unit}, {OLD}: systemctl show does not answer" in lines
        assert "run it again" in lines
        said: list[str] = []
        result = free.execute(plan, said.append)
        assert (result.status, result.verdict) == (3, "refused")
        assert result.sentence.startswith(f"nothing was changed: cannot look at {KIMI.unit}, {OLD}")
        assert child.poll() is None
    assert told() == []


def test_a_switch_changes_nothing(
    told: Told, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(release, "check_whole", lambda *_: None)
    paths, record = Paths(), Record(tmp_path / "journal.jsonl")
    with pytest.raises(Failed, match="cannot look at") as error:
        transaction.switch(KIMI, "0" * 64, "declared", "", paths, record)
    assert error.value.status == 3
    assert told() == [] and (tmp_path / "journal.jsonl").read_text() == ""
    assert not paths.state_json(KIMI.name).exists() and list(paths.units.iterdir()) == []


def test_what_cannot_be_recorded_is_not_stopped(
    told: Told, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The plan was made, and then systemd fell silent."""
    monkeypatch.setattr(release, "check_whole", lambda *_: None)
    monkeypatch.setattr(free, "plan", lambda *_, **__: made_plan(units=(unit(OLD),), engine=KIMI))
    paths, record = Paths(), Record(tmp_path / "journal.jsonl")
    with pytest.raises(Failed, match=f"nothing was changed. What {OLD} is cannot be recorded"):
        transaction.switch(KIMI, "0" * 64, "declared", "", paths, record)
    assert told() == []
    assert not paths.state_json(KIMI.name).exists()


def test_a_stop_that_cannot_look_does_not_claim_success(
    told: Told, capsys: pytest.CaptureFixture[str]
) -> None:
    file = Paths().engine_json(KIMI.name)
    file.write_text(json.dumps(asdict(KIMI)))
    assert cli.main(["stop", KIMI.name]) == 3
    assert "sglangctl stop: nothing was changed: cannot look at" in capsys.readouterr().err
    assert told() == []


def test_no_answer_during_the_stop_is_no_empty_cgroup(
    told: Told, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The processes are looked for where the unit was when the plan was made."""
    old = unit(OLD, ControlGroup="/system.slice/" + OLD)
    plan = made_plan(units=(old,), engine=KIMI)
    escalation_run = escalation.Escalation(plan, escalation.Recorder(print, None))
    monkeypatch.setattr(type(old), "pids", lambda self: [os.getpid()] if self == old else [])

    class Inside:
        system_unit = OLD

    monkeypatch.setattr(escalation.membership, "of", lambda *_: Inside)
    (member,) = escalation_run._members({OLD})
    assert member.identity.pid == os.getpid()
    member.close()


def test_without_systemd_there_are_no_units_and_no_refusal(
    told: Told, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(systemctl, "booted", lambda: False)
    plan = free.plan(KIMI, HostConfig(), [])
    assert not plan.refused
    assert any("systemd is not the init of this machine" in note for note in plan.notes)


def test_a_refusal_of_this_kind_is_a_document_too() -> None:
    made: Any = made_plan(unseen=(OLD,), units=())
    document = json.loads(json.dumps(plan_document(made)))
    assert document["refused"][0]["class"] == "unseen"
    assert document["refused"][0]["who"] == OLD
    assert document["units_to_stop"] == [] and document["empty"] is False


def test_a_switch_that_cannot_be_looked_at_has_not_ended(told: Told, tmp_path: Path) -> None:
    answer = look_at("kimi", "20260101T000000Z-1", 0, Paths(tmp_path))
    assert (answer.lines, answer.offset, answer.status) == ([], 0, "-")
