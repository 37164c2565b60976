"""A whole run with a defect of ours or of pyinfra's on one host: it fails alone, and the others come to their
end."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.hosts.say import ROOT

pytestmark = pytest.mark.slow

HOSTS = ("first.example", "second.example", "third.example")
INVENTORY = """
from roles.entry.hosts import pyinfra_hosts as _hosts
from roles.stages import preflight_check, unchanged
from tests.support import answering_hosts as _answering

def _planted(name):
    if name == "second.example":
        raise KeyError("planted")

{plant}
hosts = _hosts()
"""
PLANTED = {
    "nothing": "_answering.among()",
    "connect": "_answering.among(connect=_planted)",
    "answer": "_answering.among(answered=_planted)",
    "disconnect": "_answering.among(disconnect=_planted)",
    "stage": """
_answering.among()
from pyinfra.context import host as _host
_before = preflight_check.decision_of
def _decision_of(engine):
    _planted(_host.name)
    return _before(engine)
preflight_check.decision_of = _decision_of
""",
    "operation": """
_answering.among()
from pyinfra.context import host as _host
from roles.engine import operations as _operations
_before = _operations.needs_staging
def _needs_staging(*arguments):
    _planted(_host.name)
    return _before(*arguments)
_operations.needs_staging = _needs_staging
""",
}


def run(folder: Path, plant: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    (folder / "planted.py").write_text(INVENTORY.format(plant=PLANTED[plant]))
    engine = {"model": {"path": "/m"}, "kernel": {"source": "none"}}
    document = {"hosts": {name: {"engines": {"chat": engine}} for name in HOSTS}}
    (folder / "hosts.yml").write_text(yaml.safe_dump(document))
    return subprocess.run(
        [
            sys.executable,
            "-m",
            "pyinfra",
            str(folder / "planted.py"),
            "deploys/sglang.py",
            *arguments,
        ],
        cwd=ROOT,
        env={
            **os.environ,
            "SGLANG_INVENTORY": str(folder / "hosts.yml"),
            "SGLANG_REPORTS": str(folder / "reports"),
            "PYINFRA_PROGRESS": "off",
            "PYTHONPATH": str(ROOT),
        },
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
    )


def outcomes(folder: Path) -> dict[str, str]:
    (report,) = folder.glob("reports/*/report.json")
    document: dict[str, Any] = json.loads(report.read_text())
    return {one["host"]: one["outcome"] for one in document["report"]}


def test_hosts_on_which_nothing_is_to_be_done(tmp_path: Path) -> None:
    done = run(tmp_path, "nothing", "-y")
    assert done.returncode == 0, done.stdout + done.stderr
    assert outcomes(tmp_path) == dict.fromkeys(HOSTS, "ok")
    assert done.stderr.count("Starting operation") == 1


@pytest.mark.parametrize("arguments", [["-y"], ["--dry"]])
@pytest.mark.parametrize("plant", [name for name in PLANTED if name != "nothing"])
def test_what_goes_wrong_on_one_ends_no_other_one(
    tmp_path: Path, plant: str, arguments: list[str]
) -> None:
    done = run(tmp_path, plant, *arguments)
    text = done.stdout + done.stderr
    assert "Traceback" not in text and "planted" in text, text
    found = outcomes(tmp_path)
    # When it is disconnected from, all is done.
    wrong = 0 if plant == "disconnect" else 1
    assert done.returncode == wrong and (found.pop("second.example") == "ok") == (not wrong)
    assert set(found.values()) == {"ok"}
