"""What a probe finds out about a venv without running anything of it."""

from __future__ import annotations

import errno
import json
import os
import pwd
import shutil
import sys
import tempfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from sglangctl.probe import venvs
from sglangctl.state.ownership import MARKER
from sglangctl.state.paths import Paths
from sglangctl.systemd.unit import Unit
from tests.support import pip_venv
from tests.support.engine_config import ENGINE

SITE = f"lib/python3.{sys.version_info[1]}/site-packages"


@pytest.fixture
def venv(tmp_path: Path) -> Path:
    site = pip_venv.made(tmp_path / "venv")
    (site / "sglang").mkdir()
    (tmp_path / "venv" / MARKER).write_text("{}")
    for folder in (tmp_path / "venv").rglob("*"):
        if folder.is_dir() and not folder.is_symlink():
            folder.chmod(0o755)
    (tmp_path / "venv").chmod(0o755)
    return tmp_path / "venv"


def test_a_whole_one(venv: Path) -> None:
    assert venvs.describe(str(venv), "python3") == {"wrong": None, "starts": True, "python": None}


def test_a_disk_that_does_not_answer_fails_no_probe(
    venv: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(path: Path) -> bool:
        raise OSError(errno.EIO, "Input/output error", str(path))

    monkeypatch.setattr(Path, "is_file", fails)
    found = venvs.describe(str(venv), None)
    assert "the disk does not answer" in found["wrong"]
    assert found["starts"], "what runs from it is left alone"


@pytest.mark.parametrize(
    ("damage", "said"),
    [
        (lambda venv: shutil.rmtree(venv), "new"),
        (lambda venv: (venv / MARKER).unlink(), "not finished"),
        (lambda venv: (venv / "bin/python").unlink(), "bin/python is gone"),
        (lambda venv: relinked(venv, "/nowhere/python3.9"), "bin/python leads nowhere"),
        (lambda venv: shutil.rmtree(venv / "bin"), "bin/python is gone"),
        (lambda venv: (venv / "pyvenv.cfg").unlink(), "pyvenv.cfg is gone"),
        (lambda venv: (venv / "pyvenv.cfg").write_text(""), "pyvenv.cfg is gone or cut"),
        (lambda venv: (venv / "pyvenv.cfg").write_text("version = 3.1.4\n"), "made for Python 3.1"),
        (lambda venv: shutil.rmtree(venv / SITE), "site-packages is gone"),
        (lambda venv: shutil.rmtree(venv / SITE / "sglang"), "sglang is gone"),
        (lambda venv: venv.chmod(0o750), "has mode 0750"),
        (lambda venv: (venv / SITE / "sglang").chmod(0o700), "sglang has mode 0700"),
    ],
)
def test_what_is_lost_or_closed(venv: Path, damage: Callable[[Path], Any], said: str) -> None:
    damage(venv)
    assert said in str(venvs.describe(str(venv), None)["wrong"])


def relinked(venv: Path, target: str) -> None:
    (venv / "bin/python").unlink()
    (venv / "bin/python").symlink_to(target)


def test_an_engine_of_the_system_s_packages_is_not_looked_for_in_the_venv(venv: Path) -> None:
    text = (venv / "pyvenv.cfg").read_text().replace("packages = false", "packages = true")
    (venv / "pyvenv.cfg").write_text(text)
    (venv / SITE / "sglang").rmdir()
    assert venvs.damage(venv) is None


def test_a_python_that_cannot_make_one() -> None:
    """It may be a user's own, and packages' .pth files run in it: root does not start it."""
    with tempfile.TemporaryDirectory() as made:
        folder = Path(made)
        folder.chmod(0o755)
        for name, script in (
            ("none", "echo \"ModuleNotFoundError: No module named 'ensurepip'\" >&2\nexit 1"),
            ("who", "id -u >&2\nexit 1"),
            ("good", "exit 0"),
        ):
            (folder / name).write_text(f"#!/bin/sh\n{script}\n")
            (folder / name).chmod(0o755)
        missing = str(folder / "venv")

        def said(python: str) -> str | None:
            found: str | None = venvs.describe(missing, python)["python"]
            return found

        assert said(str(folder / "none")) == "ModuleNotFoundError: No module named 'ensurepip'"
        assert "No such file" in str(said("/no/python"))
        assert said(str(folder / "good")) is None
        user = pwd.getpwnam("nobody").pw_uid if os.geteuid() == 0 else os.geteuid()
        assert said(str(folder / "who")) == str(user)


@pytest.mark.timeout(20)
def test_pipes_in_a_venv_are_not_waited_for(venv: Path) -> None:
    for path in (venv / "pyvenv.cfg", venv / MARKER):
        path.unlink(missing_ok=True)
        os.mkfifo(path)
    venvs.damage(venv)
    venvs.changed_packages(venv, venv / SITE, True)


def test_who_runs_from_it(tmp_path: Path) -> None:
    paths = Paths(tmp_path)
    engines, shown = {}, {}
    for name, state in (("a", "active"), ("b", "activating"), ("c", "failed"), ("d", "active")):
        engines[name] = replace(ENGINE, name=name, unit=f"sglang-{name}.service")
        shown[f"sglang-{name}.service"] = Unit(
            f"sglang-{name}.service", {"ActiveState": state, "Job": "0"}
        )
        folder = paths.releases(name) / ("ab" * 32)
        folder.mkdir(parents=True)
        venv = "/v/other" if name == "d" else "/v/one"
        (folder / "manifest.json").write_text(f'{{"venv": "{venv}"}}')
        os.symlink(f"releases/{'ab' * 32}", paths.current(name))
    assert venvs.running_from(engines, shown, paths) == {"/v/one": ["a", "b"], "/v/other": ["d"]}
    assert venvs.running_from(engines, None, paths) == {}


def test_packages_that_were_changed_by_hand(venv: Path) -> None:
    for name in ("numpy-2.4.1", "torch-2.9.1", "sglang_kernel-0.4.10"):
        (venv / SITE / f"{name}.dist-info").mkdir(mode=0o755)
        (venv / SITE / f"{name}.dist-info/RECORD").touch()
    pins = {"Torch": "2.9.1", "sgl.kernel": "0.4.10"}
    marker = venv / MARKER
    later = marker.stat().st_mtime + 5
    marker.write_text(json.dumps({"v": 1, "packages": pins}))
    os.utime(marker, (later, later))
    assert venvs.damage(venv) is None
    for name in ("numpy-2.4.1", "sglang_kernel-0.4.10"):  # a deploy installs the kernel itself
        os.utime(venv / SITE / f"{name}.dist-info/RECORD", (later + 5, later + 5))
    shutil.rmtree(venv / SITE / "torch-2.9.1.dist-info")
    said = str(venvs.damage(venv))
    assert said == "changed by hand since it was verified: numpy 2.4.1, Torch is gone"
