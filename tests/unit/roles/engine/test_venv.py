"""The check of a venv, run for real in a venv of this machine; and what a failure says."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest

from roles.engine.venv import VERIFY, Venv, all_of, next_step
from roles.remote.steps import STEP
from tests.support import pip_venv


@pytest.fixture(scope="module")
def python(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A venv with pip, and a module `sglang` of version 0.5.23+local."""
    folder = tmp_path_factory.mktemp("venv")
    site = pip_venv.made(folder)
    (site / "sglang").mkdir()
    (site / "sglang/__init__.py").touch()
    info = site / "sglang-0.5.23+local.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: sglang\nVersion: 0.5.23+local\n")
    return folder / "bin/python"


def verify(python: Path, marker: Path, *pins: str) -> subprocess.CompletedProcess[str]:
    argv = [str(python), "-I", "-c", VERIFY, json.dumps(pins), str(marker)]
    return subprocess.run(argv, capture_output=True, text=True)


@pytest.mark.parametrize("pin", ["sglang==0.5.23", "sglang == 0.5.23", "sglang==0.5.23.0"])
def test_a_pin_that_is_met(python: Path, tmp_path: Path, pin: str) -> None:
    done = verify(python, tmp_path / "marker", pin)
    assert done.returncode == 0, done.stderr
    written = json.loads((tmp_path / "marker").read_text())
    assert written["packages"] == {"sglang": "0.5.23+local"}


@pytest.mark.parametrize(
    ("pin", "word"),
    [("sglang==0.5.2", "not ==0.5.2"), ("torch==2.14.1", "torch is not there")],
)
def test_a_pin_that_is_not_met_leaves_no_marker(
    python: Path, tmp_path: Path, pin: str, word: str
) -> None:
    done = verify(python, tmp_path / "marker", pin)
    assert done.returncode != 0
    assert word in done.stderr
    assert list(tmp_path.iterdir()) == []


def test_each_word_stays_a_word() -> None:
    line = all_of([["printf", "%s\\n", "a b", "$(id)", "; false"], ["true"]]).get_raw_value()
    done = subprocess.run(["sh", "-c", line], capture_output=True, text=True)
    assert done.stdout.splitlines() == ["a b", "$(id)", "; false"]


def test_the_next_step_is_that_of_the_step_that_failed() -> None:
    then = next_step(Venv("/opt/sglang/venvs/x", "python3", ("sglang==1",)), live=False)
    assert "python3-venv" in then([f"{STEP}creating the venv", "ensurepip is not available"])
    assert "index" in then([f"{STEP}creating the venv", f"{STEP}installing the packages", "no"])
    assert "another deploy" in then([])
