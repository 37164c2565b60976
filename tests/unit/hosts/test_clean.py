"""What CI takes away at its end: processes that tests left, and no others."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from tests.hosts import clean


def test_only_what_a_test_of_this_checkout_started_is_ended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    checkout = tmp_path / "checkout"
    checkout.mkdir()
    monkeypatch.setattr(clean, "ROOT", checkout)
    without = {key: value for key, value in os.environ.items() if key != "PYTEST_CURRENT_TEST"}
    sleep = ["sleep", "60"]
    left = subprocess.Popen(sleep, cwd=checkout, start_new_session=True)
    persons = subprocess.Popen(sleep, cwd=checkout, env=without)
    elsewhere = subprocess.Popen(sleep, cwd=tmp_path)
    try:
        assert clean.strays() == [(left.pid, "sleep 60 ")]
        assert left.wait(10) == -9
        assert (persons.poll(), elsewhere.poll()) == (None, None)
    finally:
        for process in (left, persons, elsewhere):
            process.kill()
            process.wait()
