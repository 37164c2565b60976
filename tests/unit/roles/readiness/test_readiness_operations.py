"""The role's operations over @local, with their report: in pyinfra's API, and for what only its
command line does (plans) in that."""

from __future__ import annotations

import contextlib
import json
import logging
import os
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from pyinfra.api import Config, Inventory, State
from pyinfra.api.connect import connect_all, disconnect_all
from pyinfra.api.exceptions import PyinfraError
from pyinfra.api.operation import add_op
from pyinfra.api.operations import run_ops
from pyinfra.context import ctx_state

from roles.entry.verify import judge
from roles.inventory import Secret
from roles.readiness import follow, reachable
from roles.readiness.operations import proved, reached, serving
from roles.readiness.subject import Subject
from roles.remote import failing, steps
from roles.report import result as results
from roles.report.report import report_once
from sglangctl.state.config import Limits
from sglangctl.state.paths import Paths
from tests.support.watched import Watched

CHECKOUT = Path(__file__).parents[4]
HERE = CHECKOUT / "tests/support/readiness_role"
UNIT = {
    **{"active": "activating", "sub": "start-post", "result": "success", "invocation_id": "aa"},
    **{"restarts": 0, "job": True, "watch": "active"},
}
DOWN = {**UNIT, "active": "failed", "sub": "failed", "result": "exit-code", "job": False}
HOST = "@local"
PROGRAM = (sys.executable, str(HERE / "host_program.py"))


def verified(outcome: str | None, status: int, **more: Any) -> dict[str, Any]:
    found = {
        "name": "kimi",
        "outcome": outcome,
        "status": status,
        "cause": None,
        "sentence": "said",
    }
    numbers = {"tokens": 64, "tokens_per_s": 41.2, "ttft_s": 0.21, "accept_length": 2.1}
    return {"v": 1, "verify": {**found, **numbers, "checks": [], **more}}


@dataclass
class Done:
    status: int
    text: str
    calls: list[str]
    reports: list[dict[str, Any]]

    @property
    def host(self) -> dict[str, Any]:
        (report,) = self.reports
        assert report["v"] == 1 and report["deploy"] == "test"
        (host,) = report["report"]
        assert host["host"] == HOST
        return dict(host)

    @property
    def engine(self) -> dict[str, Any]:
        (engine,) = self.host["engines"]
        return dict(engine)


class Bench:
    """A host's files, and runs of pyinfra against it."""

    def __init__(
        self, root: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        self.root, self.caplog, self.monkeypatch = root, caplog, monkeypatch
        monkeypatch.setattr(follow, "PAUSE_S", 0.05)
        monkeypatch.setattr(follow, "DOWN_S", 0.3)
        monkeypatch.setattr(reachable, "PAUSE_S", 0.01)
        self.paths = Paths(root / "host")
        self.paths.engines.mkdir(parents=True)
        config = {
            **{"v": 1, "name": "kimi", "unit": "sglang-kimi.service", "user": "sglang"},
            **{"port": 30000, "listen": "0.0.0.0", "model": "/m", "served_name": "kimi-k2.5"},
        }
        self.paths.engine_json("kimi").write_text(json.dumps(config))
        self.case: dict[str, Any] = {"unit": UNIT, "verify": {"kimi": verified("ready", 0)}}

    def journal(self) -> Watched:
        folder = self.paths.starts("kimi") / "1-aa"
        folder.mkdir(parents=True)
        writer = Watched(folder / "journal.jsonl")
        writer.write(0, "launch", v=1, engine="sglang", port=30000)
        return writer

    def environment(self) -> dict[str, str]:
        (self.root / "calls").write_text("")
        return {
            "PYTHONPATH": str(CHECKOUT),
            "SGLANGCTL_ROOT": str(self.root / "host"),
            "SGLANG_REPORTS": str(self.root / "reports"),
            "CASE": json.dumps(self.case),
            "CALLS": str(self.root / "calls"),
        }

    def run(
        self,
        operation: str,
        engines: Sequence[str] = ("kimi",),
        settled: bool = False,
        reachable_at: str | None = None,
        api_key: Secret | None = None,
        program: tuple[str, ...] = PROGRAM,
        limits: Limits = Limits(),  # noqa: B008 (frozen)
        hosts: Sequence[Any] = (HOST,),
    ) -> Done:
        for name, value in self.environment().items():
            self.monkeypatch.setenv(name, value)
        failing.MESSAGES.clear()
        results.RESULTS.clear()
        self.caplog.clear()
        self.caplog.set_level(logging.INFO, "pyinfra")
        state = State(Inventory((list(hosts), {})), Config())
        subjects = [
            Subject(
                name,
                f"sglang-{name}.service",
                "kimi-k2.5",
                8000,
                limits,
                reachable_at,
                api_key,
                program,
            )
            for name in engines
        ]
        connect_all(state)
        with ctx_state.use(state):
            report_once("test")
            report_once("test")
        if operation == "proved":
            add_op(state, proved, name="Verify", subjects=subjects)
        else:
            (subject,) = subjects
            commit = ("switch", "--commit=abc")
            ask = {"subject": subject, "settled": lambda: settled}
            add_op(state, serving, name="Readiness", then=lambda: commit, **ask)
            add_op(state, reached, name="Clients", **ask)
        with contextlib.suppress(PyinfraError):  # no hosts remaining
            run_ops(state)
        disconnect_all(state)
        return self.done(1 if state.failed_hosts else 0, self.caplog.text)

    def plan(self, settled: bool) -> tuple[list[str], Done]:
        """The operations that `pyinfra --dry --json` would run."""
        done = subprocess.run(
            [
                *(sys.executable, "-m", "pyinfra", HOST, str(HERE / "deploy.py")),
                *("--dry", "--json"),
            ],
            cwd=CHECKOUT,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=60,
            env={**os.environ, **self.environment(), "SETTLED": "1" if settled else ""},
        )
        plan = json.loads(done.stdout)["plan"]
        pending = [operation["name"] for operation in plan if operation["hosts_with_change"]]
        return pending, self.done(done.returncode, done.stderr)

    def done(self, status: int, text: str) -> Done:
        files = sorted((self.root / "reports").glob("*/report.json"))
        return Done(
            status,
            text,
            (self.root / "calls").read_text().splitlines(),
            [json.loads(file.read_text()) for file in files],
        )


@pytest.fixture
def bench(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> Bench:
    return Bench(tmp_path, caplog, monkeypatch)


def serve(writer: Watched) -> None:
    writer.write(19, "log", data="Load weight begin. avail mem=90.00 GB\n")
    writer.write(20, "socket", port=30000, owner_pid=7, ours=True)
    writer.write(20, "log", data="INFO:     Uvicorn running on http://0.0.0.0:30000\n")
    writer.write(22, "http", path="/health", status=200, error=None, seconds=0.1)
    writer.write(23, "generate", status=200, seconds=0.9, text_ok=True)


def test_ready(bench: Bench) -> None:
    serve(bench.journal())
    done = bench.run("serving")
    assert done.status == 0, done.text
    assert "kimi: ready after 22 s" in done.text
    assert "time per phase: " in done.text and "loading" in done.text
    assert "41.2 tokens/s, first token after 0.21 s, accept length 2.10" in done.text
    assert [call.split()[0] for call in done.calls] == ["journal", "verify", "switch"]
    assert done.host["outcome"] == "ok" and done.host["messages"] == []
    assert done.engine["outcome"] == "ready" and done.engine["exit"] == 0
    assert done.engine["phases"]["loading"] == pytest.approx(1, abs=0.1)
    (operation, clients) = done.host["operations"]
    assert operation == {"name": "Readiness", "success": True, "changed": True}
    assert clients["changed"] is False


@pytest.mark.slow
def test_a_long_proof_gives_signs_of_life(bench: Bench) -> None:
    bench.monkeypatch.setattr(steps, "HEARTBEAT_S", 0.2)
    bench.case["slow"] = 1.0
    done = bench.run("proved")
    assert done.status == 0
    assert 2 <= done.text.count("kimi: proof by a generation: 0.") <= 8, done.text


def test_degraded_is_said_and_accepted(bench: Bench) -> None:
    serve(bench.journal())
    check = {"name": "accept length", "passed": False, "detail": "1.00 is below 1.2"}
    bench.case["verify"]["kimi"] = verified("degraded", 0, checks=[check])
    done = bench.run("serving")
    assert done.status == 0 and done.engine["outcome"] == "degraded"
    assert "accept length: not ok: 1.00 is below 1.2" in done.text


def test_degraded_may_be_a_failure(bench: Bench) -> None:
    serve(bench.journal())
    bench.case["verify"]["kimi"] = verified("degraded", 1)
    done = bench.run("serving")
    assert done.status == 1 and "readiness.degraded is a failure" in done.text
    assert "switch" not in " ".join(done.calls)


def test_a_failed_start(bench: Bench) -> None:
    writer = bench.journal()
    line = "ERROR:    [Errno 98] error while attempting to bind on address ('0.0.0.0', 30000)\n"
    writer.write(20, "log", data=line)
    writer.write(23, "exit", returncode=1)
    done = bench.run("serving")
    assert done.status == 1
    assert "kimi: failed after 23 s" in done.text
    assert "port-taken: " in done.text and "next step: " in done.text and "Errno 98" in done.text
    assert "sglangctl bundle kimi" in done.text
    assert all(call.startswith("journal") for call in done.calls)
    assert (done.engine["outcome"], done.engine["cause"]) == ("failed", "port-taken")
    assert done.host["outcome"] == "failed" and "port-taken" in done.host["messages"][0]
    assert done.host["operations"][1]["success"] is None


def test_a_unit_that_went_down_without_a_verdict(bench: Bench) -> None:
    bench.case["unit"] = DOWN
    done = bench.run("serving")
    assert done.status == 1 and done.engine["outcome"] == "failed" and done.engine["exit"] == 1
    assert "sglang-kimi.service failed before it had a main process (exit-code)" in done.text
    assert "next step: journalctl -u sglang-kimi.service" in done.text


def test_a_unit_whose_program_systemd_could_not_start(bench: Bench) -> None:
    bench.case["unit"] = {**DOWN, "exit_status": 203}
    done = bench.run("serving")
    assert done.status == 1 and done.engine["outcome"] == "failed"
    assert "sglang-kimi.service could not be started: 203/EXEC: its program" in done.text
    assert "next step: deploy again" in done.text


def test_a_unit_that_was_stopped_meanwhile(bench: Bench) -> None:
    bench.case["unit"] = {**DOWN, "active": "inactive", "sub": "dead", "result": "success"}
    done = bench.run("serving")
    assert done.status == 1 and done.engine["outcome"] is None and done.engine["exit"] == 1
    assert "sglang-kimi.service is inactive/dead (result: success)" in done.text
    assert "sglangctl logs kimi" in done.text


@pytest.mark.slow
def test_a_start_that_takes_too_long_without_a_watch(bench: Bench) -> None:
    bench.case["unit"] = {**UNIT, "watch": "failed"}
    bench.monkeypatch.setattr(follow, "LATE_S", 0.0)
    bench.monkeypatch.setattr(follow, "WAIT_S", 0.2)
    done = bench.run("serving", limits=Limits(start_s=1))
    assert done.status == 1 and done.engine["outcome"] == "deadline"
    assert "kimi: deadline" in done.text
    assert "time limit of 1.0 s has passed, and sglang-kimi.service is activating" in done.text


def test_served_and_then_not_proved(bench: Bench) -> None:
    serve(bench.journal())
    check = {"name": "generation", "passed": False, "detail": "one token repeated \x1b[2J"}
    bench.case["verify"]["kimi"] = verified(None, 1, checks=[check], sentence="kimi is not ready")
    done = bench.run("serving")
    assert done.status == 1
    assert "generation: not ok: one token repeated \\x1b[2J" in done.text
    assert "\x1b[2J" not in done.text


@pytest.mark.parametrize("answer", ["", "Traceback", '{"v": 2}', '{"v": 1, "verify": {}}'])
def test_an_answer_of_verify_that_is_none(bench: Bench, answer: str) -> None:
    bench.case["verify"]["kimi"] = answer
    done = bench.run("proved")
    assert done.status == 1 and "did not answer with its document" in done.text
    assert done.engine["exit"] == 2 and done.engine["outcome"] is None
    assert "internal error" not in done.text


@pytest.mark.parametrize("operation", ["serving", "proved"])
def test_no_program_on_the_host(bench: Bench, operation: str) -> None:
    done = bench.run(operation, program=("/no/such/program",))
    assert done.status == 1 and "could not be looked at" in done.text
    assert "/no/such/program" in done.text and done.engine["exit"] == 2


def test_nothing_to_do_on_a_converged_host(bench: Bench) -> None:
    done = bench.run("serving", settled=True)
    assert done.status == 0 and done.calls == []
    assert [one["changed"] for one in done.host["operations"]] == [False, False]


@pytest.mark.parametrize("settled", [False, True])
def test_the_plan_tells_the_truth_and_touches_nothing(bench: Bench, settled: bool) -> None:
    pending, done = bench.plan(settled)
    assert pending == ([] if settled else ["Readiness"])
    assert done.status == 0 and done.calls == [] and done.reports == []


def test_all_engines_of_a_host_are_asked(bench: Bench) -> None:
    bench.case["verify"] = {
        "kimi": verified(None, 1, sentence="kimi does not run"),
        "other": verified("ready", 0),
    }
    done = bench.run("proved", engines=["kimi", "other"])
    assert done.status == 1
    assert {one["engine"]: one["exit"] for one in done.host["engines"]} == {"kimi": 1, "other": 0}


def test_an_unreachable_host_is_in_the_report(bench: Bench) -> None:
    gone = ("gone", {"ssh_hostname": "127.0.0.1", "ssh_port": 1, "ssh_user": "nobody"})
    done = bench.run("proved", hosts=[HOST, gone])
    (document,) = done.reports
    found = {host["host"]: host for host in document["report"]}
    assert found["gone"]["outcome"] == "unreachable" and found["gone"]["engines"] == []
    assert found[HOST]["outcome"] == "ok" and found[HOST]["engines"][0]["outcome"] == "ready"


@pytest.mark.slow
def test_a_lost_api_key_leaves_the_engine_s_own_proof_alone(bench: Bench) -> None:
    serve(bench.journal())
    lost = Secret("", missing="environment variable K is not set on the controller")
    done = bench.run("serving", reachable_at="http://127.0.0.1:1", api_key=lost)
    assert done.engine["outcome"] == "ready" and done.engine["reachable"] is None
    assert "environment variable K is not set on the controller; the engine itself" in done.text
    assert judge(done.status, done.reports[0]) == (2, "could not be checked: @local")
    done = bench.run("serving", api_key=lost)
    assert done.status == 0 and "variable K" not in done.text


def test_clients_are_apart_from_the_engine(bench: Bench) -> None:
    serve(bench.journal())
    done = bench.run("serving", reachable_at="http://127.0.0.1:1")
    assert done.status == 1 and "cannot be reached from here" in done.text
    assert "the engine itself is up" in done.text
    assert done.engine["outcome"] == "ready" and done.engine["reachable"] is False
