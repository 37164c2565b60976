"""Why a unit does not run, by systemd's own words."""

from __future__ import annotations

import pytest

from sglangctl.systemd.unit_failure import spawn_step, why

UNIT = "sglang-kimi.service"


@pytest.mark.parametrize(
    ("result", "status", "words", "step"),
    [
        # As systemd 252 showed them: Result, ExecMainStatus.
        ("exit-code", 203, "203/EXEC: its program", "venv"),
        ("exit-code", 200, "200/CHDIR: its working folder", "deploy again"),
        ("exit-code", 217, "217/USER: the user that it runs as does not exist", "deploy again"),
        ("exit-code", 226, "226/NAMESPACE: its sandbox", "journalctl -u sglang-kimi.service"),
        ("exit-code", 209, "209/STDOUT: its log cannot be opened", "df /var/log"),
        ("exit-code", 231, "231: systemd could not start the program", "journalctl"),
        ("resources", None, "an environment file of the release", "journalctl"),
        ("exit-code", None, "before it had a main process (exit-code)", "journalctl"),
        ("signal", -9, "ended with signal 9", "journalctl"),
        ("exit-code", 1, "ended with exit status 1", "journalctl"),
    ],
)
def test_why(result: str, status: int | None, words: str, step: str) -> None:
    found = why(UNIT, result, status)
    assert found is not None
    assert UNIT in found.sentence and words in found.sentence
    assert step in found.next_step and "UNIT" not in found.next_step


@pytest.mark.parametrize("status", [None, 0, -15])
def test_no_failure(status: int | None) -> None:
    assert why(UNIT, "success", status) is None


@pytest.mark.parametrize("status", [None, 0, 1, 2, -9, 137, 255])
def test_an_exit_status_of_the_program_s_own(status: int | None) -> None:
    assert spawn_step(status) is None
