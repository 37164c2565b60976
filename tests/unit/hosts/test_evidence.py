"""`make test-real` leaves its result behind; a part of a run, or none, leaves nothing."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.hosts.say import ROOT

TESTS = """
import pytest

@pytest.mark.real
def test_good(record_property):
    record_property("freed_s", 1.5)

@pytest.mark.real
def test_bad():
    assert 1 == 2, "one is not two"

@pytest.mark.real
def test_left_out():
    pytest.skip("no GPU here")

def test_of_another_tier():
    raise SystemExit
"""
PLUGIN = """
import pathlib
from tests.hosts import evidence

def pytest_configure(config):
    config.pluginmanager.register(evidence.Evidence(pathlib.Path("out")))
"""


def run(folder: Path, *arguments: str) -> list[Path]:
    (folder / "test_it.py").write_text(TESTS)
    (folder / "plugin.py").write_text(PLUGIN)
    (folder / "pytest.ini").write_text("[pytest]\nmarkers = real\n")
    subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-m", "real", "-p", "plugin", *arguments],
        cwd=folder,
        env={"PYTHONPATH": f"{ROOT}:{folder}", "PATH": "/usr/bin:/bin"},
        capture_output=True,
        timeout=100,
    )
    return list(folder.glob("out/*.json"))


def test_outcomes_reasons_and_measurements_are_kept(tmp_path: Path) -> None:
    [path] = run(tmp_path)
    document = json.loads(path.read_text())
    assert document["v"] == 1 and document["machine"]["cores"] >= 1
    assert document["counts"] == {"passed": 1, "failed": 1, "skipped": 1}
    good, bad, left_out = document["tests"]
    assert good["measured"] == {"freed_s": 1.5} and good["outcome"] == "passed"
    assert bad["name"] == "test_it.py::test_bad" and "one is not two" in bad["why"]
    assert "no GPU here" in left_out["why"]


@pytest.mark.parametrize(
    "argument",
    [
        ("-k", "good"),
        pytest.param(("test_it.py::test_good",), marks=pytest.mark.slow),
        pytest.param(("--co",), marks=pytest.mark.slow),
    ],
)
def test_a_selection_is_no_evidence(tmp_path: Path, argument: tuple[str, ...]) -> None:
    assert run(tmp_path, *argument) == []
