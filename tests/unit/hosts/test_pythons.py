"""make check-pythons: which interpreters it takes, and what it keeps of their runs."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path

import pytest
import yaml

from tests.hosts import pythons
from tests.hosts.say import ROOT


def test_the_workflow_runs_every_version() -> None:
    workflow = yaml.safe_load((ROOT / ".github/workflows/ci.yml").read_text())
    jobs = workflow["jobs"]
    assert tuple(jobs["pythons"]["strategy"]["matrix"]["python"]) == pythons.VERSIONS
    assert "check-pythons" in jobs["pythons"]["steps"][-1]["run"]
    assert any("bash .ci/run" in step.get("run", "") for step in jobs["test"]["steps"])


def interpreter(home: Path, place: str) -> Path:
    path = home / place
    path.parent.mkdir(parents=True)
    path.touch()
    return path


def test_the_newest_of_pyenv_comes_first_then_uv_then_path(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Path, "home", lambda: tmp_path)
    monkeypatch.setattr(shutil, "which", lambda name: f"/usr/bin/{name}")
    assert pythons.find("3.9") == Path("/usr/bin/python3.9")
    uv = interpreter(tmp_path, ".local/share/uv/python/cpython-3.9.2-linux/bin/python3.9")
    assert pythons.find("3.9") == uv
    interpreter(tmp_path, ".pyenv/versions/3.9.9/bin/python3.9")
    newest = interpreter(tmp_path, ".pyenv/versions/3.9.18/bin/python3.9")
    assert pythons.find("3.9") == newest


def test_what_an_old_python_needs_and_leaves_out(tmp_path: Path) -> None:
    module = tmp_path / "test_both.py"
    module.write_text("from roles.inventory import render\n")
    assert pythons.imports_the_controller(module)
    module.write_text("from tests.support.inventory_case import only\n")
    assert pythons.imports_the_controller(module), "by a module that tests share"
    module.write_text("from roles.remote import program\n")
    assert not pythons.imports_the_controller(module)
    old, new = (
        {re.split("[<>=]", one)[0] for one in pythons.wanted(version)}
        for version in ("3.9", "3.10")
    )
    assert old > pythons.TOOLS and "pyinfra" not in old
    assert new > pythons.TOOLS | {"pyinfra"} and "ruff" not in new


def test_each_result_takes_the_place_of_its_version_s_last_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pythons, "RESULT", tmp_path / "pythons.json")
    for version, passed in (("3.10", 1), ("3.9", 2), ("3.10", 3)):
        pythons.keep(version, {"passed": passed})
    kept = json.loads((tmp_path / "pythons.json").read_text())
    assert kept["v"] == 1
    assert list(kept["pythons"].items()) == [("3.9", {"passed": 2}), ("3.10", {"passed": 3})]


def test_a_report_names_what_failed(tmp_path: Path) -> None:
    report = tmp_path / "report.xml"
    report.write_text(
        '<testsuites><testsuite tests="3" failures="1" errors="0" skipped="1">'
        '<testcase classname="a" name="good"/>'
        '<testcase classname="a" name="bad"><failure/></testcase>'
        '<testcase classname="a" name="left"><skipped message="no root"/></testcase>'
        "</testsuite></testsuites>"
    )
    found = pythons.outcome(report)
    assert (found["passed"], found["failed"]) == (1, ["a::bad"])
    assert found["skipped_because"] == ["no root"]
