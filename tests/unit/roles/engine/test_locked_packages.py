"""A locked environment: what the real pip installs, and what it refuses."""

from __future__ import annotations

import hashlib
import json
import subprocess
from pathlib import Path

import pytest

from roles.engine import venv as engine_venv
from roles.engine.venv import Venv
from roles.inventory import locked
from roles.remote.steps import STEP
from tests.support import pip_venv
from tests.support.wheels import wheel

PINS = ("sglang==0.5.23",)


class Case:
    """An environment, an index in a folder and a lock of what lies there."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.index = folder / "index"
        self.index.mkdir()
        wheel(self.index, "sglang", "0.5.23", "torch>=2.14")
        wheel(self.index, "torch", "2.14.0")
        requirements = ""
        for file in sorted(self.index.iterdir()):
            name, version = file.name.split("-")[:2]
            digest = hashlib.sha256(file.read_bytes()).hexdigest()
            requirements += f"{name}=={version} \\\n    --hash=sha256:{digest}\n"
        requirements += "never==1.0 ; python_full_version < '3' \\\n    --hash=sha256:" + "a" * 64
        content = locked.written(PINS, requirements + "\n")
        lock = locked.Locked(tuple(locked.parse(content)[1]), content)
        sources = ("--no-index", f"--find-links={self.index}")
        self.site = pip_venv.made(folder / "venv")
        self.venv = Venv(str(folder / "venv"), "python3", PINS, sources, locked=lock)
        file = folder / "requirements.txt"
        file.write_bytes(content)
        monkeypatch.setattr(Venv, "requirements", str(file))

    def install(self) -> subprocess.CompletedProcess[str]:
        pip = [f"{self.venv.path}/bin/python", "-I", "-m", "pip", "install", "--no-cache-dir"]
        pip += [*self.venv.pip_arguments, "--require-hashes", "-r", self.venv.requirements]
        return subprocess.run(pip, capture_output=True, text=True)

    def verify(self) -> subprocess.CompletedProcess[str]:
        wanted = json.dumps(self.venv.verified)
        python = f"{self.venv.path}/bin/python"
        (self.site / "sglang").mkdir(exist_ok=True)
        argv = [python, "-I", "-c", engine_venv.VERIFY, wanted]
        return subprocess.run(argv, capture_output=True, text=True)


@pytest.fixture
def case(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Case:
    return Case(tmp_path, monkeypatch)


@pytest.mark.slow
def test_what_is_locked_is_installed_although_there_is_something_newer(case: Case) -> None:
    wheel(case.index, "torch", "2.14.1")
    done = case.install()
    assert done.returncode == 0, done.stderr
    checked = case.verify()
    assert checked.returncode == 0, checked.stderr
    assert json.loads(checked.stdout) == {"sglang": "0.5.23", "torch": "2.14.0"}


@pytest.mark.slow
def test_another_file_of_that_version_is_refused_with_the_next_step(case: Case) -> None:
    wheel(case.index, "torch", "2.14.0", "something")
    done = case.install()
    assert done.returncode != 0
    lines = [f"{STEP}installing the packages", *done.stderr.splitlines()]
    assert "sglang-lock --upgrade" in engine_venv.next_step(case.venv)(lines)


@pytest.mark.slow
def test_a_package_of_another_version_is_noticed(case: Case) -> None:
    assert case.install().returncode == 0
    (info,) = case.site.glob("torch-2.14.0.dist-info")
    text = (info / "METADATA").read_text()
    (info / "METADATA").write_text(text.replace("2.14.0", "2.14.1"))
    done = case.verify()
    assert done.returncode != 0 and "torch is 2.14.1, not ==2.14.0" in done.stderr


def test_another_kernel_than_the_locked_one_is_the_kernels_own_matter() -> None:
    packages = (
        "sglang-kernel==0.4.10",
        "sgl_kernel==0.3.1 ; sys_platform == 'linux'",
        "torch==2.14.0",
    )
    venv = Venv("/x", "python3", PINS, locked=locked.Locked(packages, b""))
    assert venv.verified == ("sglang==0.5.23", "torch==2.14.0")
