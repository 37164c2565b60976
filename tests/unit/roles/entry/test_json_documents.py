"""sglang-plan --json and sglang-verify --json: one document, every host by its name."""

from __future__ import annotations

import json
import socket
import subprocess
from pathlib import Path
from typing import Any

import pytest

from roles.entry import plan, verify
from roles.entry.project import INVENTORY_VARIABLE
from roles.remote.failing import FORESEEN_VARIABLE

CHOICE = {"engine": "chat", "action": "RESTART", "reasons": ["port 1 -> 2"]}


def test_a_plan_as_a_document(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def run(deploy: str, *arguments: str, env: dict[str, str], stdout: int) -> Any:
        told = [
            {"host": "b", "choice": CHOICE},
            {"host": "a", "error": "cannot be connected to: timeout"},
            {"report": {"v": 1}},
        ]
        Path(env[FORESEEN_VARIABLE]).write_text("".join(f"{json.dumps(one)}\n" for one in told))
        assert arguments.count("--json") == 1  # pyinfra's own
        found = {"plan": [{"name": "x", "hosts_with_change": ["b"]}]}
        return subprocess.CompletedProcess([], 0, json.dumps(found).encode())

    monkeypatch.setattr(plan, "pyinfra", run)
    assert plan.main(["--json"]) == 2
    streams = capsys.readouterr()
    document = json.loads(streams.out)
    assert (document["v"], document["status"]) == (1, 2)
    a, b = document["plan"]
    assert a["host"] == "a" and "timeout" in a["errors"][0] and a["engines"] == []
    assert b == {"host": "b", "engines": [CHOICE], "operations": ["x"], "errors": []}
    assert "pending" in streams.err


def test_no_plan_is_a_document_too() -> None:
    told = [{"host": "a", "text": "weights are missing"}]
    (host,) = plan.document(1, b"", told)["plan"]
    assert host["errors"] == ["weights are missing"]


def test_a_verification_as_a_document(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    engine = {"engine": "chat", "exit": 0, "reachable": None}
    report = {"host": "b", "outcome": "ok", "messages": [], "engines": [engine], "operations": []}

    def run(deploy: str, *arguments: str, env: dict[str, str], stdout: int) -> Any:
        assert "--json" not in arguments and stdout == 2
        told = [{"host": "a", "error": "cannot be connected to"}, {"report": {"report": [report]}}]
        Path(env[FORESEEN_VARIABLE]).write_text("".join(f"{json.dumps(one)}\n" for one in told))
        return subprocess.CompletedProcess([], 0)

    monkeypatch.setattr(verify, "pyinfra", run)
    assert verify.main(["--json"]) == 0
    document = json.loads(capfd.readouterr().out)
    assert document["status"] == 0 and "chat on b" in document["sentence"]
    assert document["verify"][0]["outcome"] == "unreachable"
    assert document["verify"][1]["engines"] == [engine]


def test_nobody_was_reached(capfd: pytest.CaptureFixture[str]) -> None:
    (host,) = verify.hosts(None, [{"host": "a", "error": "x"}, {"host": "a", "error": "x"}])
    assert host["messages"] == ["x"] and host["outcome"] == "unreachable"


@pytest.mark.slow
def test_a_host_that_cannot_be_reached_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    with socket.socket() as taken:  # bound and not listening: every connection is refused
        taken.bind(("127.0.0.1", 0))
        ssh = f"{{hostname: 127.0.0.1, port: {taken.getsockname()[1]}, user: root}}"
        engine = "{model: {path: /m}, kernel: {source: none}}"
        inventory = tmp_path / "hosts.yml"
        inventory.write_text(f"hosts:\n  far:\n    ssh: {ssh}\n    engines: {{e: {engine}}}\n")
        monkeypatch.setenv(INVENTORY_VARIABLE, str(inventory))
        assert plan.main(["--json"]) == 1
    (host,) = json.loads(capfd.readouterr().out)["plan"]
    assert host["host"] == "far" and "cannot be connected to" in host["errors"][0]
