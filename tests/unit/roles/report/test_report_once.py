"""The report is written once, at the end, and its cost grows with the number of hosts."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from roles.remote import failing
from roles.report import report


class Host(SimpleNamespace):
    __hash__ = object.__hash__


class State:
    """What the report reads of pyinfra's state."""

    is_executing = True

    def __init__(self, names: list[str]) -> None:
        self.inventory = [Host(name=name) for name in names]
        self.activated_hosts = set(self.inventory)
        self.failed_hosts: set[Any] = set()
        self.ops: dict[Any, dict[str, Any]] = {host: {} for host in self.inventory}
        self.ordered = 0

    def get_op_order(self) -> list[str]:
        self.ordered += 1
        return []


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv(report.FOLDER_VARIABLE, str(tmp_path))
    monkeypatch.setattr(failing, "MESSAGES", {})
    return tmp_path


def test_one_report_when_the_last_host_is_gone(folder: Path) -> None:
    state: Any = State(["a", "b", "c"])
    handler = report.Report(state, "sglang")
    for host in state.inventory:
        assert list(folder.glob("*/report.json")) == []
        handler.host_disconnect(state, host)
    (file,) = folder.glob("*/report.json")
    assert [one["host"] for one in json.loads(file.read_text())["report"]] == ["a", "b", "c"]
    assert state.ordered == 1
    assert "<h2>c " in file.with_suffix(".html").read_text()


def test_a_host_whose_disconnection_failed_does_not_cost_the_report(folder: Path) -> None:
    state: Any = State(["a", "b"])
    handler = report.Report(state, "sglang")
    handler.host_disconnect(state, state.inventory[0])
    handler.finish()  # what Python calls at the end of the program
    assert len(list(folder.glob("*/report.json"))) == 1


def test_a_plan_without_a_failure_has_no_report(folder: Path) -> None:
    state: Any = State(["a"])
    state.is_executing = False
    report.Report(state, "sglang").host_disconnect(state, state.inventory[0])
    assert list(folder.iterdir()) == []


def test_the_command_that_started_the_run_has_the_report_and_it_stays(
    folder: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(report, "prepared", lambda host: None)
    monkeypatch.setattr(failing, "MESSAGES", {"a": ["it does not serve"]})
    told = folder / "told"
    monkeypatch.setenv(failing.FORESEEN_VARIABLE, str(told))
    state: Any = State(["a"])
    with caplog.at_level("INFO", logger="pyinfra"):
        report.Report(state, "verify").finish()
    (file,) = folder.glob("*/report.json")
    assert json.loads(told.read_text())["report"] == json.loads(file.read_text())
    (line,) = [text for text in caplog.messages if "evidence:" in text]
    assert str(file) in line


def test_a_report_that_cannot_be_written_is_told_all_the_same(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """cron as a user who may not write there: sglang-verify still has its status."""
    monkeypatch.setenv(failing.FORESEEN_VARIABLE, str(folder / "told"))
    monkeypatch.setenv(report.FOLDER_VARIABLE, "/proc/none")
    state: Any = State(["a"])
    report.Report(state, "verify").finish()
    assert json.loads((folder / "told").read_text())["report"]["deploy"] == "verify"


def test_a_command_that_failed_is_told_by_its_last_words(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # A full /etc: no message in the report, and no last screen.
    monkeypatch.setattr(report, "prepared", lambda host: None)
    monkeypatch.setattr(report, "engines_now", lambda state, host: [])
    state: Any = State(["a"])
    (host,) = state.inventory

    def operation(success: bool, *said: str) -> Any:
        meta = SimpleNamespace(
            is_complete=lambda: True,
            did_succeed=lambda: success,
            did_change=lambda: True,
            stdout_lines=[],
            stderr_lines=list(said),
        )
        return SimpleNamespace(operation_meta=meta)

    state.ops[host] = {"1": operation(True), "2": operation(False, "base64: full", "")}
    monkeypatch.setattr(state, "get_op_order", lambda: ["1", "2"])
    state.get_op_meta = lambda op_hash: SimpleNamespace(names={f"op {op_hash}"})
    handler = report.Report(state, "sglang")
    handler.operation_host_error(state, host, "2")
    handler.finish()
    (file,) = folder.glob("*/report.json")
    assert json.loads(file.read_text())["report"][0]["messages"] == ["op 2: base64: full"]
