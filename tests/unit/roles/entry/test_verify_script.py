"""sglang-verify's exit status, from pyinfra's and the report."""

from __future__ import annotations

import signal
import subprocess
from pathlib import Path
from typing import Any

import pytest

from roles.entry import verify
from roles.entry.verify import judge


def host(name: str, outcome: str, *engines: tuple[str, int, bool | None]) -> dict[str, Any]:
    return {
        "host": name,
        "outcome": outcome,
        "engines": [
            {"engine": engine, "exit": status, "reachable": reachable}
            for engine, status, reachable in engines
        ],
    }


@pytest.mark.parametrize(
    ("returncode", "hosts", "status", "said"),
    [
        (0, [host("a", "ok", ("kimi", 0, None))], 0, "ready: kimi on a"),
        (0, [host("a", "ok", ("kimi", 0, True))], 0, "ready: kimi on a"),
        (1, [host("a", "failed", ("kimi", 1, None))], 1, "not ready: kimi on a"),
        (1, [host("a", "failed", ("kimi", 0, False))], 1, "not ready: kimi on a"),
        (1, [host("a", "failed", ("kimi", 2, None))], 2, "could not be checked: kimi on a"),
        (1, [host("a", "failed")], 2, "could not be checked: a"),
        (0, [host("a", "ok", ("k", 0, None)), host("b", "unreachable")], 2, "b"),
        (1, [host("a", "failed", ("k", 1, None)), host("b", "unreachable")], 1, "k on a"),
        (1, [host("a", "ok", ("k", 0, None))], 2, "nothing could be checked"),
        (0, [], 2, "nothing could be checked"),
    ],
)
def test_judge(returncode: int, hosts: list[dict[str, Any]], status: int, said: str) -> None:
    found, sentence = judge(returncode, {"v": 1, "report": hosts})
    assert found == status and said in sentence


@pytest.mark.parametrize("returncode", [0, 1])
def test_no_report_is_not_ready(returncode: int) -> None:
    assert judge(returncode, None)[0] == 2


@pytest.mark.slow
def test_a_missing_or_wrong_inventory_could_not_be_checked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("SGLANG_INVENTORY", str(tmp_path / "hosts.yml"))
    assert verify.main([]) == 2
    assert "sglang-verify: nothing could be checked" in capfd.readouterr().err
    # The host is this machine: it is reached, and refused for its mistake.
    (tmp_path / "hosts.yml").write_text("hosts: {'@local': {engines: {chat: {modle: 1}}}}\n")
    assert verify.main([]) == 2
    assert "did you mean" in capfd.readouterr().err


def test_ctrl_c_is_pyinfras(monkeypatch: pytest.MonkeyPatch) -> None:
    """The command waits for pyinfra's own end, and says what is in its report then."""

    def interrupted(*args: object, **options: object) -> subprocess.CompletedProcess[bytes]:
        signal.raise_signal(signal.SIGINT)
        return subprocess.CompletedProcess([], 1)

    monkeypatch.setattr(subprocess, "run", interrupted)
    before = signal.getsignal(signal.SIGINT)
    assert verify.main([]) == 2
    assert signal.getsignal(signal.SIGINT) is before
