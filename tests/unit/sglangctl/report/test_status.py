"""`sglangctl status`: what is known, how old it is, and when it is not to be believed."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from sglangctl import cli
from sglangctl.report import status
from sglangctl.report.textfile import Writer
from sglangctl.startup import render
from sglangctl.state import lock, release
from sglangctl.state.config import Readiness
from sglangctl.state.paths import Paths
from sglangctl.systemd.unit import Unit
from sglangctl.watch import before_start
from tests.support.units import unit, watch
from tests.support.watched import Watched


class Host:
    """A host's files, and what systemd says there."""

    def __init__(self, root: Path) -> None:
        self.paths = Paths(root)
        self.unit: Unit | None = unit()
        self.watch = watch()
        self.paths.engines.mkdir(parents=True)

    def engine(self, name: str = "kimi", **more: Any) -> None:
        document = {
            **{"v": 1, "name": name, "unit": f"sglang-{name}.service", "user": "sglang"},
            **{"port": 30000, "listen": "0.0.0.0", "model": "/m", "served_name": "kimi-k2.5"},
            **more,
        }
        self.paths.engine_json(name).write_text(json.dumps(document))

    def start(self, start: str = "1-aa", name: str = "kimi", port: int = 30000) -> Watched:
        folder = self.paths.starts(name) / start
        folder.mkdir(parents=True)
        writer = Watched(folder / "journal.jsonl")
        writer.write(0, "launch", v=1, engine="sglang", port=port)
        return writer


@pytest.fixture
def host(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Host:
    monkeypatch.setenv("SGLANGCTL_ROOT", str(tmp_path))
    host = Host(tmp_path)
    monkeypatch.setattr(
        status, "with_watch", lambda name, unit: (host.unit, host.watch) if host.unit else None
    )
    return host


def serve(writer: Watched, t: float) -> None:
    writer.write(t, "socket", port=30000, owner_pid=7, ours=True)
    writer.write(t, "log", data="INFO:     Uvicorn running on http://0.0.0.0:30000\n")
    writer.write(t + 1, "http", path="/health", status=200, error=None, seconds=0.1)


def document(capsys: pytest.CaptureFixture[str], *argv: str) -> tuple[int, list[dict[str, Any]]]:
    code = cli.main(["status", "--json", *argv])
    found = json.loads(capsys.readouterr().out)
    assert found["v"] == 1
    return code, found["status"]


def text(capsys: pytest.CaptureFixture[str], *argv: str) -> tuple[int, str]:
    code = cli.main(["status", *argv])
    return code, capsys.readouterr().out


def test_serving(host: Host, capsys: pytest.CaptureFixture[str]) -> None:
    host.engine()
    writer = host.start()
    writer.write(3, "gpu", gpus=[{"memory_used_mib": 77824, "memory_total_mib": 97887}])
    serve(writer, 20)
    writer.write(23, "generate", status=200, text_ok=True, tokens_per_s=41.2, ttft_s=0.2, text="hi")
    code, (one,) = document(capsys)
    assert code == 0 == one["exit"]
    assert (one["outcome"], one["phase"], one["start"]) == ("ready", "serving", "1-aa")
    assert one["served_after_s"] == pytest.approx(21, abs=0.5)
    assert one["phases"]["launching"] >= 0 and one["notes"] == []
    assert one["generate"]["tokens_per_s"] == 41.2 and "text" not in one["generate"]
    code, shown = text(capsys, "kimi")
    assert code == 0
    head, line, *details = shown.splitlines()
    assert head.split() == [
        "ENGINE",
        "STATE",
        "SINCE",
        "(UTC)",
        "PORT",
        "MODEL",
        "RELEASE",
        "PROOF",
    ]
    assert line.startswith("kimi    ready  ") and "  30000  kimi-k2.5  " in line
    assert "41.2 tokens/s, " in line and line.endswith(" ago")
    assert any("GPU 76.0 of 95.6 GiB" in detail for detail in details)
    assert len(text(capsys)[1].splitlines()) == 2, "nothing is said of what is well"


def test_starting_has_progress_of_now(host: Host, capsys: pytest.CaptureFixture[str]) -> None:
    host.engine()
    host.unit = unit("activating", "start-post", job=True)
    writer = host.start()
    writer.write(10, "log", data="\rLoading safetensors checkpoint shards:  50% 32/64 [00:01]\r")
    file = host.paths.starts("kimi") / "1-aa" / "journal.jsonl"
    os.utime(file, (time.time() - 30, time.time() - 30))
    code, (one,) = document(capsys)
    assert code == 1
    assert (one["outcome"], one["phase"]) == ("pending", "loading")
    assert "32 of 64" in one["progress"]
    assert one["elapsed_s"] == pytest.approx(40, abs=3) and one["seen_s"] == pytest.approx(
        30, abs=3
    )
    assert "32 of 64" in text(capsys)[1]


def test_a_failure_is_explained(host: Host, capsys: pytest.CaptureFixture[str]) -> None:
    host.engine()
    host.unit = unit("failed", "failed", "exit-code", restarts=3)
    writer = host.start()
    line = "ERROR:    [Errno 98] error while attempting to bind on address ('0.0.0.0', 30000)\n"
    writer.write(20, "log", data=line)
    writer.write(24, "exit", returncode=1)
    code, (one,) = document(capsys)
    assert code == 1
    assert (one["outcome"], one["cause"]) == ("failed", "port-taken")
    code, shown = text(capsys)
    assert "port-taken: " in shown and "next step: " in shown and "| ERROR:" in shown
    assert "restarted 3 times" in shown
    assert render.restarted(1) == "restarted once"


def test_a_stopped_rank_has_its_command(host: Host, capsys: pytest.CaptureFixture[str]) -> None:
    """The process that was stopped, when by the clock, and the command in a line of its own."""
    host.engine()
    writer = Watched(host.start().path, launched="2026-11-30T02:50:00+00:00")
    serve(writer, 20)
    rank = {"pid": 451, "name": "sglang::scheduler_TP0", "cpu_s": 1.0, "ppid": 7}
    for t, state in ((30, "S"), (370, "T"), (372, "T"), (374, "T")):
        writer.write(t, "process", processes=[{**rank, "state": state}])
    code, shown = text(capsys)
    assert code == 1, shown
    lines = shown.splitlines()
    assert lines[1].startswith("kimi    unresponsive  ")
    assert "  kill -CONT 451" in lines, shown
    assert any("since 02:56:10 UTC (370 s after the launch)" in line for line in lines), shown


def test_colours_are_for_terminals(
    host: Host, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    host.engine()
    serve(host.start(), 20)
    assert "\x1b" not in text(capsys)[1]
    monkeypatch.setattr("sys.stdout.isatty", lambda: True, raising=False)
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "40")
    monkeypatch.delenv("NO_COLOR", raising=False)
    shown = text(capsys)[1]
    assert "\x1b[32mserving\x1b[0m" in shown
    assert all(
        len(line.replace("\x1b[32m", "").replace("\x1b[0m", "")) <= 40
        for line in shown.splitlines()
    )
    monkeypatch.setenv("NO_COLOR", "1")
    assert "\x1b" not in text(capsys)[1]


def test_the_previous_start_is_not_this_one(host: Host, capsys: pytest.CaptureFixture[str]) -> None:
    """A unit that was just started again has no journal yet: the old one's `ready` is no answer."""
    host.engine()
    serve(host.start("1-old"), 20)
    code, (one,) = document(capsys)
    assert code == 2 and one["outcome"] is None and one["start"] is None
    assert "there is no journal of this start" in one["notes"][0]


def test_a_journal_that_was_deleted_beside_its_engine(
    host: Host, capsys: pytest.CaptureFixture[str]
) -> None:
    host.engine()
    serve(host.start(), 20)
    (host.paths.starts("kimi") / "1-aa" / "journal.jsonl").unlink()
    code, (one,) = document(capsys)
    assert code == 2 and one["outcome"] is None
    assert "systemctl restart sglang-watch@kimi.service" in one["notes"][0]
    assert "sglangctl verify kimi" in one["notes"][1]


def test_a_dead_watch_is_not_believed(host: Host, capsys: pytest.CaptureFixture[str]) -> None:
    host.engine()
    serve(host.start(), 20)
    host.watch = watch("failed")
    code, (one,) = document(capsys)
    assert code == 2 and "the watch is not running" in one["notes"][0]
    host.watch = watch()
    file = host.paths.starts("kimi") / "1-aa" / "journal.jsonl"
    os.utime(file, (time.time() - 500, time.time() - 500))
    code, (one,) = document(capsys)
    assert code == 2 and "silent for 8 min" in one["notes"][0]


def test_a_stopped_engine_does_not_serve(host: Host, capsys: pytest.CaptureFixture[str]) -> None:
    host.engine()
    serve(host.start(), 20)
    host.unit = unit("inactive", "dead", invocation_id="")
    code, (one,) = document(capsys)
    assert code == 1 and "the unit is inactive" in one["notes"][0]
    host.engine("other")
    host.watch = watch("inactive")
    code, shown = text(capsys, "other")
    assert code == 1 and "systemctl start sglang-other.service" in shown


def test_a_unit_that_never_had_a_program(host: Host, capsys: pytest.CaptureFixture[str]) -> None:
    host.engine()
    host.unit = unit("failed", "failed", "exit-code", "bb", 2, exit_status=203)
    serve(host.start("1-aa"), 20)  # of an earlier start: no answer
    code, (one,) = document(capsys)
    assert code == 1 and one["outcome"] == "failed" and one["start"] is None
    code, shown = text(capsys)
    assert code == 1 and "203/EXEC" in shown and "next step: deploy again" in shown
    assert "note: " not in shown, "the deciding line is none"
    host.unit = unit("activating", "auto-restart", "exit-code", "bb", 2, exit_status=217)
    code, shown = text(capsys)
    assert code == 1 and "217/USER" in shown and "systemd starts it again" in shown
    assert "note: " not in shown, "also while systemd tries again"
    host.unit = unit("failed", "failed", "resources", "bb", 2)
    assert "environment file" in text(capsys)[1]


def test_metrics_read_no_weights(host: Host, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a unit that its check stopped, every 30 s: nothing is remembered of a model with faults."""
    host.engine()
    host.unit = unit("failed", "failed", "exit-code", "bb", 2)
    looked: list[object] = []
    monkeypatch.setattr(before_start, "faults", lambda *_: looked.append(_) or [])
    file = host.paths.textfile("kimi")
    file.parent.mkdir(parents=True)
    Writer("kimi", host.paths).write()
    assert 'sglang_engine_outcome{engine="kimi",outcome="failed"} 1\n' in file.read_text()
    assert not looked
    assert cli.main(["status", "kimi"]) == 1 and looked, "status does"


def test_a_slow_stop_shows_what_it_was(host: Host, capsys: pytest.CaptureFixture[str]) -> None:
    host.engine()
    serve(host.start(), 20)
    host.unit = unit("deactivating", "stop-sigterm", job=True)
    code, (one,) = document(capsys)
    assert code == 1 and one["start"] == "1-aa" and one["outcome"] == "serving"
    assert "it is being stopped (deactivating/stop-sigterm)" in one["notes"][0]
    host.unit = unit(
        "deactivating", "stop-sigterm", invocation_id="bb", job=True
    )  # nobody watched it
    code, shown = text(capsys)
    assert code == 1 and "it is being stopped" in shown and "no journal" not in shown
    host.unit = unit("failed", "failed", invocation_id="bb", job=True)
    assert "a start of it is queued" in text(capsys)[1]


def test_numbers_are_of_now_or_carry_their_age(
    host: Host, capsys: pytest.CaptureFixture[str]
) -> None:
    host.engine()
    writer = host.start()
    serve(writer, 20)
    writer.write(30, "gpu", gpus=[{"memory_used_mib": 77824, "memory_total_mib": 97887}])
    writer.write(70, "log", data="a line\n")
    file = host.paths.starts("kimi") / "1-aa" / "journal.jsonl"
    os.utime(file, (time.time() - 50, time.time() - 50))
    code, (one,) = document(capsys)
    assert code == 0
    assert one["elapsed_s"] == pytest.approx(120, abs=3)
    assert one["serving_s"] == pytest.approx(99, abs=4)
    assert one["gpus_age_s"] == pytest.approx(90, abs=3)
    shown = text(capsys, "kimi")[1]
    assert "(1 min 39 s)" in shown and "GiB (1 min 30 s ago)" in shown
    since = time.strftime("%H:%M:", time.gmtime(one["since"]))
    assert since in shown and abs(one["since"] - (time.time() - 99)) < 4
    host.unit = unit("inactive", "dead")
    shown = text(capsys, "kimi")[1]
    assert "GiB" not in shown and "kimi    down  " in shown  # it holds none any more


def test_a_proof_of_another_configuration_is_said(
    host: Host, capsys: pytest.CaptureFixture[str]
) -> None:
    host.engine()
    writer = host.start()
    serve(writer, 20)
    asked = Readiness().asked
    writer.write(23, "generate", status=200, text_ok=True, tokens_per_s=41.2, asked=asked)
    code, (one,) = document(capsys)
    assert code == 0 and one["outcome"] == "ready" and one["notes"] == []
    host.engine(readiness={"expect": "Lyon"})
    code, (one,) = document(capsys)
    assert code == 0 and "proof is for an older configuration" in one["notes"][0]
    assert "sglangctl verify kimi" in text(capsys)[1]
    host.engine(readiness={"degraded": "fail", "restart_unresponsive": True})  # not asked of it
    assert document(capsys)[1][0]["notes"] == []


def test_a_switch_that_was_killed_is_said(host: Host, capsys: pytest.CaptureFixture[str]) -> None:
    """What it let in serves and is neither enabled nor restarted by systemd: the table alone says ready."""
    host.engine()
    serve(host.start(), 20)
    state = release.State(phase="switching", to="b" * 64, step="following")
    release.write_state("kimi", state, host.paths)
    code, said = text(capsys)
    assert code == 0 and "release bbbbbbbbbbbb was interrupted (step: following)" in said
    assert "sglangctl switch kimi --resume" in said
    with lock.locked(host.paths, "kimi", "switch of kimi"):
        assert "interrupted" not in text(capsys)[1], "it runs"
    release.write_state("kimi", replace(state, phase="live"), host.paths)
    assert "interrupted" not in text(capsys)[1]


def test_without_systemd(host: Host, capsys: pytest.CaptureFixture[str]) -> None:
    host.engine()
    host.unit = None
    assert document(capsys)[0] == 2
    serve(host.start(), 20)
    code, (one,) = document(capsys)
    assert code == 0 and one["active"] is None and one["outcome"] == "serving"


def test_the_verdict_of_an_older_watch(host: Host, capsys: pytest.CaptureFixture[str]) -> None:
    host.engine()
    writer = host.start()
    serve(writer, 20)
    writer.write(
        90, "verdict", phase="serving", outcome="degraded", cause=None, evidence=["accept 1.0"]
    )
    writer.write(95, "gpu", gpus=[{"memory_used_mib": 1024, "memory_total_mib": 97887}])
    code, (one,) = document(capsys)
    assert code == 0 and one["outcome"] == "degraded" and one["evidence"] == ["accept 1.0"]
    assert one["elapsed_s"] == pytest.approx(95, abs=2) and one["gpus"]
    assert one["served_after_s"] == pytest.approx(21, abs=0.5) and one["phases"]


def test_a_healthy_host_is_told_without_the_fold(host: Host) -> None:
    """Its many expressions cost more than all the rest."""
    host.engine()
    host.unit = None
    serve(host.start(), 20)
    script = "import sys; from sglangctl import cli; code = cli.main(['status']); "
    script += "print(code, *(m for m in sys.modules if m.startswith('sglangctl.startup.')))"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    said = done.stdout.splitlines()
    assert said[1].startswith("kimi    serving") and said[-1].startswith("0 ")
    assert "sglangctl.startup.summary" in said[-1] and "sglangctl.startup.fold" not in said[-1]


def test_several_engines(host: Host, capsys: pytest.CaptureFixture[str]) -> None:
    host.engine("kimi")
    host.engine("other")
    serve(host.start(), 20)
    code, found = document(capsys)
    assert [one["name"] for one in found] == ["kimi", "other"]
    assert code == 2 == max(one["exit"] for one in found)
    assert document(capsys, "kimi")[0] == 0


@pytest.mark.parametrize("name", ["nobody", "../x", "a/b"])
def test_no_such_engine(host: Host, capsys: pytest.CaptureFixture[str], name: str) -> None:
    assert cli.main(["status", name]) == 2
    assert capsys.readouterr().err.startswith("sglangctl status: ")


def test_no_engine_at_all(host: Host, capsys: pytest.CaptureFixture[str]) -> None:
    code, shown = text(capsys)
    assert code == 2 and "no engine is configured" in shown


def test_a_journal_full_of_noise(host: Host, capsys: pytest.CaptureFixture[str]) -> None:
    host.engine()
    writer = host.start()
    with open(writer.path, "ab") as file:
        file.write(b"\x00\xff\n[]\n{}\n" + b'{"t": 1e999, "kind": "log"}\n{"t": 1, "kind": "x"}\n')
        file.write(
            b'{"t": 4, "kind": "gpu", "gpus": {}}\n{"t": 1' + b"0" * 400 + b', "kind": "x"}\n'
        )
        file.write(b'{"t": 5, "kind": "verdict", "outcome": ["a"], "evidence": 7}\n{"t": 6, "ki')
    assert document(capsys)[0] in (1, 2)
    assert text(capsys)[0] in (1, 2)


def test_drop_ins_and_since_when(host: Host, capsys: pytest.CaptureFixture[str]) -> None:
    host.engine()
    ours = "/run/x.d/50-sglangctl-switch.conf"
    changed = str(round((time.monotonic() - 100) * 1e6))
    host.unit = unit(
        "failed",
        "failed",
        "exit-code",
        invocation_id="",
        DropInPaths=f"/etc/x.d/colleague.conf {ours}",
        StateChangeTimestampMonotonic=changed,
        StartLimitBurst="3",
    )
    _, (one,) = document(capsys)
    assert abs(one["since"] - (time.time() - 100)) < 5 and one["tries"] == 3
    host.unit = unit(DropInPaths=f"/etc/x.d/colleague.conf {ours}")
    serve(host.start(), 1)
    _, said = text(capsys, "kimi")
    assert "/etc/x.d/colleague.conf" in said and ours not in said
