import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from roles.entry import plan as script
from roles.entry.plan import judge
from roles.remote.failing import FORESEEN_VARIABLE
from tests.hosts.say import ROOT


def plan(*changes: tuple[str, list[str]]) -> bytes:
    return json.dumps(
        {"plan": [{"name": name, "hosts_with_change": hosts} for name, hosts in changes]}
    ).encode()


def test_nothing_to_do() -> None:
    assert judge(0, plan(("a", []))) == (0, ["sglang-plan: nothing to do"])


def test_pending_changes_are_listed() -> None:
    status, lines = judge(0, plan(("stage", ["h2", "h1"]), ("user", [])))
    assert status == 2
    assert lines == ["sglang-plan: 1 operation pending (stage), 0 due"]


def test_what_is_due_is_a_pending_change() -> None:
    """`restart: never` leaves it; a plan that calls that nothing would hide it for ever."""
    told = [
        {"host": "h1", "choice": {"engine": "chat", "action": action}} for action in ("DUE", "x")
    ]
    assert [script.is_due(one) for one in told] == [True, False]
    status, lines = judge(0, plan(("a", [])), due=["h1: chat"])
    assert status == 2 and lines[0] == "h1: chat: a restart is due"


def test_no_host_at_all_is_an_error() -> None:
    assert judge(0, plan())[0] == 1


def test_a_failed_host_is_an_error_even_where_the_others_have_nothing_to_do() -> None:
    assert judge(1, plan())[0] == 1


def test_no_plan_is_an_error() -> None:
    for output in (b"", b"null", b"[]", b"{}"):
        assert judge(0, output)[0] == 1


def test_a_plan_that_will_fail_is_an_error() -> None:
    foreseen = [{"host": "h1", "text": "weights are missing\n  next \x1b[31m step"}]
    status, lines = judge(0, plan(("stage", ["h1", "h2"])), foreseen)
    assert status == 1
    assert lines == [
        "h1 will fail: weights are missing",
        "h1 will fail:   next \\x1b[31m step",
        "sglang-plan: the deploy would fail",
    ]
    assert judge(1, plan(("stage", ["h2"])), foreseen)[0] == 1


@pytest.mark.parametrize("arguments", [["-y"], ["--yes"], ["-vy"], ["--limit", "h", "-yv"]])
def test_yes_would_hide_the_changes(
    arguments: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(script, "pyinfra", pytest.fail)
    assert script.main(arguments) == 1
    assert "does not take -y" in capsys.readouterr().err


def test_pyinfra_is_asked_for_a_plan_without_yes(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def run(deploy: str, *arguments: str, env: dict[str, str], stdout: int) -> object:
        assert deploy == "sglang" and "PYINFRA_YES" not in env
        assert arguments == ("--dry", "--diff", "--json", "--limit", "h")
        Path(env[FORESEEN_VARIABLE]).write_text(json.dumps({"host": "h", "text": "x"}) + "\n")
        return subprocess.CompletedProcess([], 0, plan(("stage", ["h"])))

    monkeypatch.setenv("PYINFRA_YES", "1")
    monkeypatch.setattr(script, "pyinfra", run)
    assert script.main(["--limit", "h"]) == 1
    assert "h will fail: x" in capsys.readouterr().out


@pytest.mark.slow
def test_what_an_operation_foresees_is_told_in_the_plan_alone(tmp_path: Path) -> None:
    """Under the real pyinfra, over @local."""
    (tmp_path / "op.py").write_text(
        "from pyinfra.api import operation\n"
        "from roles.remote.failing import failing\n"
        "@operation()\n"
        "def fails():\n"
        "    yield failing('no weights')\n"
        "fails(name='fails')\n"
    )
    told = tmp_path / "foreseen"
    for more, foreseen, status in (
        (("--dry",), ['{"host": "@local", "text": "no weights"}'], 0),
        (("-y",), [], 1),
    ):
        told.write_text("")
        done = subprocess.run(
            [sys.executable, "-m", "pyinfra", "@local", "op.py", *more],
            cwd=tmp_path,
            env={**os.environ, "PYTHONPATH": str(ROOT), FORESEEN_VARIABLE: str(told)},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        assert done.returncode == status, done.stderr
        lines = told.read_text().splitlines()
        assert [line for line in lines if "text" in json.loads(line)] == foreseen
