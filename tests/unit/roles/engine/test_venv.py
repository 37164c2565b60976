"""The check of a venv, run for real in a venv of this machine; and what a failure says."""

from __future__ import annotations

import getpass
import json
import os
import shlex
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, cast

import pytest
from pyinfra.api import StringCommand

from roles.engine import venv as engine_venv
from roles.engine.venv import Venv, all_of, next_step, verify
from roles.remote import program
from roles.remote.steps import STEP
from sglangctl.state.ownership import MARKER
from tests.support import pip_venv

if TYPE_CHECKING:
    from pyinfra.api import Host

SYSTEM_PYTHON = f"/usr/bin/python3.{sys.version_info[1]}"
needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root has rights to give up")


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


@pytest.fixture(autouse=True, scope="module")
def shipped(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Our program, where the commands look for it."""
    file = tmp_path_factory.mktemp("program") / "sglangctl.pyz"
    file.write_bytes(program.archive())
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(program, "path", lambda: str(file))
        yield


def checked(python: Path, *pins: str, user: str | None = None) -> subprocess.CompletedProcess[str]:
    venv = Venv(str(python.parents[1]), "python3", pins, user=user or getpass.getuser())
    Path(venv.marker).unlink(missing_ok=True)
    return subprocess.run(verify(venv), capture_output=True, text=True)


@needs_root
@pytest.mark.parametrize("pin", ["sglang==0.5.23", "sglang == 0.5.23", "sglang==0.5.23.0"])
def test_a_pin_that_is_met(python: Path, pin: str) -> None:
    done = checked(python, pin)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == {"sglang": "0.5.23+local"}
    written = json.loads((python.parents[1] / MARKER).read_text())
    assert written == {"v": 1, "packages": {"sglang": "0.5.23+local"}, "pins": [pin]}


@needs_root
@pytest.mark.parametrize(
    ("pin", "word"),
    [("sglang==0.5.2", "not ==0.5.2"), ("torch==2.14.1", "torch is missing")],
)
def test_a_pin_that_is_not_met_leaves_no_marker(python: Path, pin: str, word: str) -> None:
    done = checked(python, pin)
    assert done.returncode != 0
    assert word in done.stderr
    assert not list(python.parents[1].glob(f"{MARKER}*"))


@needs_root
@pytest.mark.skipif(not os.path.exists(SYSTEM_PYTHON), reason="no Python that everybody may run")
@pytest.mark.slow
def test_code_of_a_package_does_not_run_as_root() -> None:
    """A line of a .pth file runs whenever Python starts, imported or not."""
    with tempfile.TemporaryDirectory() as made:
        folder = Path(made)
        folder.chmod(0o755)
        site = pip_venv.made(folder / "venv")
        python = folder / "venv/bin/python"
        python.unlink()
        python.symlink_to(SYSTEM_PYTHON)
        (folder / "venv/pyvenv.cfg").write_text("home = /usr/bin\n")
        mine = folder / "mine"
        (site / "evil.pth").write_text(f"import os; open({str(mine)!r}, 'w')\n")
        done = checked(python, "sglang==0.5.23", user="nobody")
        assert done.returncode != 0 and "sglang is missing" in done.stderr
        assert not mine.exists()
        checked(python, "sglang==0.5.23", user="root")
        assert mine.exists()  # what it does to root


@needs_root
def test_root_writes_the_marker_through_no_link(python: Path, tmp_path: Path) -> None:
    """A package may leave links in a venv, and root's shell would write where they lead."""
    victim = tmp_path / "cron"
    victim.write_text("root's\n")
    links = [python.parents[1] / f"{MARKER}{end}" for end in ("", ".new")]
    for link in links:
        link.unlink(missing_ok=True)
        link.symlink_to(victim)
    done = subprocess.run(
        verify(Venv(str(python.parents[1]), "python3", ("sglang==0.5.23",), user="root")),
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    assert victim.read_text() == "root's\n"
    assert links[0].is_file() and not links[0].is_symlink()


@pytest.mark.parametrize("live", [False, True])
def test_no_python_of_a_venv_is_started_by_root(
    live: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Build scripts of source packages and lines of .pth files run whenever it is."""
    started: list[str] = []

    def step(host: object, title: str, command: StringCommand, **options: object) -> list[str]:
        started.append(shlex.split(command.get_raw_value())[-1])
        return []

    monkeypatch.setattr(engine_venv, "run_step", step)
    for name in ("say", "keep"):
        monkeypatch.setattr(engine_venv, name, lambda *words: None)
    venv = Venv("/opt/sglang/venvs/x", "/opt/py/bin/python3", ("sglang==1",), user="kimi")
    engine_venv.build_venv(cast("Host", None), venv, False, live)
    (line,) = started
    commands = [shlex.split(one) for one in line.split("&&")]
    pythons = [
        one for one in commands if {"/opt/py/bin/python3", f"{venv.path}/bin/python"} & {*one}
    ]
    assert len(pythons) == (1 if live else 2)
    for words in pythons:
        before = words[: words.index("--")]
        assert "confine" in before and not {f"{venv.path}/bin/python", venv.python} & {*before}
        assert ("--build" in before) == (f"--writable={venv.path}" in before)
        assert ("--build" in before) != ("--user=kimi" in before)


@pytest.mark.parametrize("earlier", [True, False])
def test_no_other_user_can_hold_the_lock(
    earlier: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever can open the file for reading could hold up every install on this host."""
    lines: list[str] = []

    def step(host: object, title: str, command: StringCommand, **options: object) -> list[str]:
        lines.append(command.get_raw_value())
        return []

    monkeypatch.setattr(engine_venv, "run_step", step)
    for name in ("say", "keep"):
        monkeypatch.setattr(engine_venv, name, lambda *words: None)
    lock = tmp_path / "lock"
    monkeypatch.setattr(Venv, "lock", str(lock))
    engine_venv.build_venv(cast("Host", None), Venv("/v", "python3", ()), False)
    if earlier:
        lock.touch(0o644)
    flock = tmp_path / "flock"
    flock.write_text('#!/bin/sh\nexec stat -c %a -- "$4"\n')
    flock.chmod(0o755)
    path = f"{tmp_path}:{os.environ['PATH']}"
    done = subprocess.run(["sh", "-c", lines[0]], env={"PATH": path}, capture_output=True)
    assert done.stdout == b"600\n"


def test_each_word_stays_a_word() -> None:
    line = all_of([["printf", "%s\\n", "a b", "$(id)", "; false"], ["true"]]).get_raw_value()
    done = subprocess.run(["sh", "-c", line], capture_output=True, text=True)
    assert done.stdout.splitlines() == ["a b", "$(id)", "; false"]


def test_the_next_step_is_that_of_the_step_that_failed() -> None:
    then = next_step(Venv("/opt/sglang/venvs/x", "python3", ("sglang==1",)))
    assert "python3-venv" in then([f"{STEP}creating the venv", "ensurepip is not available"])
    assert "index" in then([f"{STEP}creating the venv", f"{STEP}installing the packages", "no"])
    assert "another deploy" in then([])
    disk = "disk: /dev/sda1 1024 1024 0 100% /opt"
    assert "no room left" in then([f"{STEP}creating the venv", "returned non-zero", disk])
    free = "disk: /dev/sda1 1024 24 1000 3% /opt"
    assert "python3-venv" in then([f"{STEP}creating the venv", "ensurepip is missing", free])
    closed = [f"{STEP}verifying the venv", "env: bin/python: Permission denied"]
    assert "namei -l /opt/sglang/venvs/x" in then(closed)
    kept = next_step(Venv("/opt/sglang/venvs/x", "python3", ("sglang==1",)), ["chat"])
    assert "sglangctl stop chat" in kept([f"{STEP}verifying the venv", "torch is not there"])
