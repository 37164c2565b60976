"""What is made of the answers of node_exporter and Prometheus, and of promtool's on a host."""

from __future__ import annotations

import base64
import json
import subprocess
from contextlib import nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from roles.monitoring import asking, operations
from roles.monitoring.operations import SWAP
from roles.monitoring.targets import Target
from roles.remote.failing import HostFailed

FILE = 'node_textfile_mtime_seconds{file="/var/lib/prometheus/node-exporter/sglang-chat.prom"} 1.7e+09\n'
WELL = "node_textfile_scrape_error 0\n"
WANTED = (Target("10.0.0.1:8000", "g1", "chat"), Target("10.0.0.1:9100", "g1"))


def test_the_exporter_serves_what_the_watch_writes() -> None:
    found = asking.exporter(FILE + WELL, ["chat"])
    assert found.settled and found.fault is None
    assert found.lines == ("chat: its metrics are at http://127.0.0.1:9100/metrics",)


def test_an_engine_that_is_missing_is_waited_for_and_named() -> None:
    found = asking.exporter(FILE + WELL, ["chat", "hat"])
    assert not found.settled and found.fault is None
    assert "hat: not at" in found.lines[1] and "/var/lib/prometheus/node-exporter" in found.lines[1]


@pytest.mark.parametrize(
    ("said", "fault"),
    [("", "does not answer"), (FILE + "node_textfile_scrape_error 1\n", "cannot read a file")],
)
def test_an_exporter_that_does_not_work_is_a_failure(said: str, fault: str) -> None:
    found = asking.exporter(said, ["chat"])
    assert not found.settled and fault in str(found.fault)


def answer(*targets: tuple[str, str, str, str]) -> str:
    active = [
        {"labels": {"job": job, "instance": instance}, "health": health, "lastError": error}
        for job, instance, health, error in targets
    ]
    return json.dumps({"status": "success", "data": {"activeTargets": active}})


def test_prometheus_asks_all_of_them() -> None:
    said = answer(("sglang", "10.0.0.1:8000", "up", ""), ("sglang-node", "10.0.0.1:9100", "up", ""))
    found = asking.targets(said, WANTED)
    assert found.settled and found.fault is None
    assert found.lines == ("chat on g1 is asked: 10.0.0.1:8000", "g1 is asked: 10.0.0.1:9100")


def test_who_does_not_answer_is_named_and_is_no_failure() -> None:
    """The engine may be stopped, or its host be one that this run leaves out."""
    said = answer(
        ("sglang", "10.0.0.1:8000", "down", "connection refused: is asked"),
        ("sglang-node", "10.0.0.1:9100", "up", ""),
    )
    found = asking.targets(said, WANTED)
    assert not found.settled and found.fault is None
    assert "chat on g1 does not answer (connection refused: is asked)" in found.lines[0]


@pytest.mark.parametrize(
    ("said", "fault"),
    [
        ("", "does not answer at 127.0.0.1:9090"),
        ("<html>", "does not answer at 127.0.0.1:9090"),
        # Another job asks the same address: ours are not loaded.
        (answer(("node", "10.0.0.1:9100", "up", "")), "has not asked all of them"),
        (answer(("sglang", "10.0.0.1:8000", "unknown", "")), "has not asked all of them"),
    ],
)
def test_a_prometheus_without_our_jobs_is_a_failure(said: str, fault: str) -> None:
    found = asking.targets(said, WANTED)
    assert not found.settled and fault in str(found.fault)


@dataclass
class Answering:
    """A host on which each question takes a second and is answered like this."""

    said: list[str]
    now: float = 0.0
    shown: list[str] = field(default_factory=list)

    def run_shell_command(self, command: Any, **given: Any) -> Any:
        assert given["_timeout"], "a host that hangs is not waited for without end"
        self.now += 1
        lines = self.said[:1]
        del self.said[: len(self.said) > 1]
        return lines != [""], SimpleNamespace(stdout_lines=lines)

    def wait(self, seconds: float) -> None:
        self.now += seconds


@pytest.mark.parametrize(
    ("said", "shown", "fault", "last"),
    [
        (["", FILE + WELL], 1, None, 10.0),
        ([WELL], 1, None, operations.SETTLE_S + 10),
        ([""], 0, "does not answer", operations.SETTLE_S + 10),
    ],
)
def test_it_is_asked_until_it_answers_or_the_time_is_over(
    monkeypatch: pytest.MonkeyPatch, said: list[str], shown: int, fault: str | None, last: float
) -> None:
    host: Any = Answering([*said])
    monkeypatch.setattr(operations.gevent, "sleep", host.wait)
    monkeypatch.setattr(operations.time, "monotonic", lambda: host.now)
    monkeypatch.setattr(operations, "say", lambda on, line: on.shown.append(line))
    with pytest.raises(HostFailed, match=fault) if fault else nullcontext():
        operations.patient(host, True, lambda text: asking.exporter(text, ["chat"]), asking.NODE)
    assert len(host.shown) == shown
    assert last - 10 < host.now <= last


def swapped(folder: Path, promtool: str, content: str) -> subprocess.CompletedProcess[str]:
    """The script that runs on a host, with a promtool of this text."""
    tools = folder / "bin"
    tools.mkdir(exist_ok=True)
    (tools / "promtool").write_text(f"#!/bin/sh\n{promtool}\n")
    (tools / "promtool").chmod(0o755)
    return subprocess.run(
        ["sh", "-c", SWAP, "sh", folder / "it's.yml", "config"],
        input=base64.b64encode(content.encode()).decode(),
        env={"PATH": f"{tools}:/usr/bin:/bin"},
        capture_output=True,
        text=True,
    )


def test_a_file_is_put_in_place_once_promtool_took_it(tmp_path: Path) -> None:
    file = tmp_path / "it's.yml"
    check = 'test "$1 $2" = "check config" && grep -q new "$3"'
    assert swapped(tmp_path, check, "new").returncode == 0
    assert file.read_text() == "new" and file.stat().st_mode & 0o777 == 0o644
    file.chmod(0o640)  # a password is in it
    seen = 'stat -c %a "$3" >"${3%/*}/seen"; '
    assert swapped(tmp_path, seen + check, "new too").returncode == 0
    assert (tmp_path / "seen").read_text() == "640\n"
    assert file.read_text() == "new too" and file.stat().st_mode & 0o777 == 0o640


@pytest.mark.parametrize("promtool", ["echo no such field; exit 1", "exit 3"])
def test_what_promtool_refuses_leaves_the_file_and_nothing_beside_it(
    tmp_path: Path, promtool: str
) -> None:
    (tmp_path / "it's.yml").write_text("old")
    done = swapped(tmp_path, promtool, "new")
    assert done.returncode == 1
    assert sorted(one.name for one in tmp_path.iterdir()) == ["bin", "it's.yml"]
    assert (tmp_path / "it's.yml").read_text() == "old"
