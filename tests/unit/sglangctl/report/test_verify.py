from __future__ import annotations

import json
import os
import signal
from pathlib import Path
from typing import Any

import pytest

from sglangctl.cli import main
from sglangctl.proc import procfs
from tests.support.engine_host import free_port, serves, write_config
from tests.support.http_engine import Engine, serving
from tests.support.tiny_engine import running
from tests.support.waiting import until


def verify(capsys: pytest.CaptureFixture[str], pid: int) -> tuple[int, dict[str, Any]]:
    status = main(["verify", "tiny", "--json", "--pid", str(pid)])
    document = json.loads(capsys.readouterr().out)
    assert document["v"] == 1
    return status, document["verify"]


def test_a_real_process_tree_is_ready(
    root: Path, port: int, capsys: pytest.CaptureFixture[str]
) -> None:
    write_config(root, port, tensor_parallel=2)
    with running(port, "--ranks", "2") as engine:
        serves(port)
        status, report = verify(capsys, engine.pid)
        assert (status, report["outcome"]) == (0, "ready")
        assert [check["passed"] for check in report["checks"]] == [True] * 6
        assert report["text"] == "Paris is the capital."
        assert report["tokens"] == 5 and report["ttft_s"] > 0
        assert main(["verify", "tiny", "--pid", str(engine.pid)]) == 0
        assert "tiny is ready" in capsys.readouterr().out


@pytest.mark.parametrize("title", ["sglang::scheduler_TP1", "sglang::detokenizer"])
def test_a_stopped_process_is_named(
    root: Path, port: int, capsys: pytest.CaptureFixture[str], title: str
) -> None:
    write_config(root, port, tensor_parallel=2)
    with running(port, "--ranks", "2") as engine:
        serves(port)
        found = [
            pid
            for pid in procfs.pids()
            if procfs.cmdline(pid)[:1] == [title]
            and (stat := procfs.stat(pid)) is not None
            and stat.pgid == engine.pid
        ]
        os.kill(found[0], signal.SIGSTOP)
        # The signal is sent, and takes effect when the process is next scheduled.
        until(lambda: procfs.stat(found[0]).state == "T")  # type: ignore[union-attr]
        status, report = verify(capsys, engine.pid)
    assert (status, report["outcome"]) == (1, None)
    assert f"{title} (pid {found[0]}) is stopped" in report["sentence"]
    assert report["text"] is None, "a generation was asked for, which may hang for its whole limit"


def test_another_server_on_our_port_is_never_ready(
    root: Path, port: int, capsys: pytest.CaptureFixture[str]
) -> None:
    elsewhere = free_port()
    # The port answers everything rightly, but it is this test's process that answers.
    with running(elsewhere) as engine, serving(Engine(), port) as impostor:
        serves(elsewhere)
        status, report = verify(capsys, engine.pid)
        assert "/v1/chat/completions" not in impostor.paths()
    assert status == 1
    assert f"{port} belongs to another process: pid {os.getpid()}" in report["sentence"]


def test_nobody_listens(root: Path, port: int, capsys: pytest.CaptureFixture[str]) -> None:
    with running(port, "--load-s", "60") as engine:
        status, report = verify(capsys, engine.pid)
    assert status == 1
    assert f"no process listens on {port}" in report["sentence"]


def test_another_model_is_served(root: Path, port: int, capsys: pytest.CaptureFixture[str]) -> None:
    with running(port, "--model", "other") as engine:
        serves(port)
        status, report = verify(capsys, engine.pid)
    assert status == 1
    assert "not ready" in report["sentence"] and "serves other" in report["sentence"]


def test_a_dead_pid(root: Path, port: int, capsys: pytest.CaptureFixture[str]) -> None:
    with running(port) as engine:
        pass
    status, report = verify(capsys, engine.pid)
    assert status == 1
    assert report["checks"][0] == {
        "name": "main process", "passed": False, "detail": "does not run", "degrades": False,
    }  # fmt: skip


def test_without_a_configuration_or_a_unit_it_could_not_check(
    root: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["verify", "nobody", "--json"]) == 2
    report = json.loads(capsys.readouterr().out)["verify"]
    assert "there is no engine nobody on this host (there is: tiny)" in report["sentence"]
    assert main(["verify", "tiny", "--json"]) == 2
    report = json.loads(capsys.readouterr().out)["verify"]
    assert "--pid" in report["sentence"]


def test_degraded_fails_only_where_the_inventory_says_so(
    root: Path, port: int, capsys: pytest.CaptureFixture[str]
) -> None:
    # The tiny engine's /server_info knows of no speculation at all: off, though declared.
    for policy, expected in (("commit", 0), ("fail", 1)):
        write_config(
            root,
            port,
            drafter={"algorithm": "EAGLE3", "path": "/d"},
            readiness={"degraded": policy},
        )
        with running(port) as engine:
            serves(port)
            status, report = verify(capsys, engine.pid)
        assert (status, report["outcome"]) == (expected, "degraded")


@pytest.mark.parametrize(
    ("verdict", "words"),
    [
        ({"outcome": "pending", "phase": "loading"}, "(it is still starting: loading)"),
        (
            {"outcome": "stalled", "phase": "loading", "cause": "rank-stopped"},
            "(the watch says: stalled, rank-stopped)",
        ),
        ({"outcome": "ready", "phase": "serving"}, "listens on"),
    ],
)
def test_what_the_watch_said_last_is_added(
    root: Path,
    port: int,
    capsys: pytest.CaptureFixture[str],
    verdict: dict[str, Any],
    words: str,
) -> None:
    folder = root / "var/lib/sglangctl/tiny/starts/20260101T000000Z-x"
    folder.mkdir(parents=True)
    (folder / "journal.jsonl").write_text(
        json.dumps({"t": 1.0, "kind": "verdict", **verdict}) + "\n"
    )
    (folder.parent / "latest").symlink_to(folder.name)
    with running(port, "--load-s", "60") as engine:
        status, report = verify(capsys, engine.pid)
    assert status == 1 and words in report["sentence"]
    assert report["outcome"] == (None if verdict["outcome"] == "ready" else verdict["outcome"])
