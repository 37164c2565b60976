"""The operation over @local, with a program in the place of sglangctl."""

from __future__ import annotations

import contextlib
import json
import logging
import sys
from pathlib import Path
from typing import Any

import pytest
from pyinfra.api import Config, Inventory, State
from pyinfra.api.connect import connect_all, disconnect_all
from pyinfra.api.exceptions import PyinfraError
from pyinfra.api.operation import add_op
from pyinfra.api.operations import run_ops

from roles.readiness.collective import added_up
from roles.remote import failing
from roles.report import result
from tests.support.inventory_case import engine

AUTO = "nccl: {profile: auto}\ntensor_parallel: 2"
PROGRAM = """
import json, sys
case = json.loads(open(sys.argv[1]).read())
open(sys.argv[1] + ".called", "w").write(json.dumps([sys.argv[2:], sys.stdin.read()]))
sys.stdout.write(case["out"])
sys.stderr.write(case["err"])
sys.exit(case["status"])
"""


@pytest.fixture
def deploy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> Any:
    monkeypatch.setattr(failing, "MESSAGES", {})
    monkeypatch.setattr(result, "LISTS", {})
    caplog.set_level(logging.INFO, "pyinfra")
    (tmp_path / "program.py").write_text(PROGRAM)

    def run(body: str, status: int, out: str = "", err: str = "") -> tuple[bool, str, Any]:
        case = tmp_path / "case"
        case.write_text(json.dumps({"out": out, "err": err, "status": status}))
        ctl = (sys.executable, str(tmp_path / "program.py"), str(case))
        state = State(Inventory((["@local"], {})), Config())
        connect_all(state)
        add_op(state, added_up, engine=engine(body), ctl=ctl)
        with contextlib.suppress(PyinfraError):  # no hosts remaining
            run_ops(state)
        disconnect_all(state)
        called = Path(f"{case}.called")
        words = json.loads(called.read_text()) if called.exists() else None
        return not state.failed_hosts, caplog.text, words

    return run


def said(status: int, *lines: str) -> str:
    return json.dumps({"v": 1, "collective": {"exit": status, "lines": lines}})


def test_right(deploy: Any) -> None:
    well, text, (argv, given) = deploy(AUTO, 0, said(0, "e: right: 2 ranks", "  table"))
    assert well and "e: right: 2 ranks" in text and "the next deploy chooses" in text
    assert argv == ["collective", "e", "--json", "--profiles=-"]
    assert list(json.loads(given)) == ["none", "latency", "single-switch", "throughput", "safe"]
    assert result.LISTS["@local"]["e: collective"] == ["e: right: 2 ranks", "  table"]


def test_every_profile_is_measured_where_a_fallback_alone_has_auto(deploy: Any) -> None:
    body = "tensor_parallel: 2\nfallbacks: {a: {nccl: {profile: auto}}}"
    _, text, (_, given) = deploy(body, 0, said(0, "right"))
    assert "safe" in json.loads(given) and "the next deploy chooses" in text


def test_a_named_profile_is_measured_alone(deploy: Any) -> None:
    _, text, (_, given) = deploy(
        "nccl: {profile: latency}\ntensor_parallel: 2", 0, said(0, "right")
    )
    assert json.loads(given) == {} and "the next deploy" not in text


@pytest.mark.parametrize(
    ("status", "out", "err", "words"),
    [
        (4, said(4, "e: hung: no end", "  next step: x"), "", "e: hung: no end"),
        (3, "", "sglangctl collective: nothing was measured: GPU 0 has a holder\n", "has a holder"),
        (0, "[" * 5000, "", "sglangctl gave no answer"),
        # It cannot call itself well by the status alone.
        (0, said(1, "e: wrong: 3 sums"), "", "e: wrong: 3 sums"),
    ],
)
def test_what_is_not_right_fails_the_host(
    deploy: Any, status: int, out: str, err: str, words: str
) -> None:
    well, _, _ = deploy(AUTO, status, out, err)
    assert not well and words in failing.MESSAGES["@local"][0]


def test_one_rank_is_not_asked(deploy: Any) -> None:
    well, _, words = deploy("", 1)
    assert well and words is None
