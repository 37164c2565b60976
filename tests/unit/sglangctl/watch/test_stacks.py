"""Whose stacks are taken, by which program, and where they go."""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from sglangctl.engine.processes import Process
from sglangctl.watch import stacks


def process(pid: int, name: str) -> Process:
    return Process(pid, name, "T", 0.0, 0, 1.0, 1)


needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root has rights to give up")
SPY = '#!/bin/sh\necho "$(id -un): stack of $*"\necho oops >&2\n'


@pytest.fixture
def folder() -> Iterator[Path]:
    """One that every user can read."""
    with tempfile.TemporaryDirectory() as made:
        Path(made).chmod(0o755)
        yield Path(made)


@pytest.fixture
def release(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A release with py-spy in its venv; there is none of root's."""
    monkeypatch.setenv("PATH", "/usr/bin:/bin")
    venv = folder / "venv"
    (venv / "bin").mkdir(parents=True)
    (venv / "pyvenv.cfg").touch()
    program = venv / "bin/py-spy"
    program.write_text(SPY)
    program.chmod(0o755)
    (folder / "release").mkdir()
    (folder / "release/manifest.json").write_text(json.dumps({"v": 1, "venv": str(venv)}))
    return folder / "release"


@needs_root
def test_ranks_detokenizer_and_main_process_with_the_engines_rights(
    release: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A venv's program never runs as root."""
    monkeypatch.setattr(stacks, "user_of", lambda pid: "nobody")
    found = [
        process(1, "/venv/bin/python -m sglang.launch_server"),
        process(2, "sglang::scheduler_TP0"),
        process(3, "sglang::detokenizer"),
        process(4, "ninja"),
    ]
    taken = stacks.take(tmp_path, release, 1, found)
    assert taken == ["stacks-1.txt", "stacks-2.txt", "stacks-3.txt"]
    text = (tmp_path / "stacks-2.txt").read_text()
    assert text == (
        "# sglang::scheduler_TP0 (T)\nnobody: stack of dump --nonblocking --pid 2\noops\n"
    )
    assert (tmp_path / "stacks-2.txt").stat().st_mode & 0o777 == 0o640


@needs_root
def test_of_a_process_of_root_a_venvs_program_takes_nothing(release: Path, tmp_path: Path) -> None:
    stacks.take(tmp_path, release, 1, [process(1, "sglang::scheduler")])
    text = (tmp_path / "stacks-1.txt").read_text()
    assert "stack of" not in text and "root's" in text


def test_roots_own_is_taken_and_an_activated_venvs_is_not(
    release: Path, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    own = folder / "bin/py-spy"
    own.parent.mkdir()
    own.write_text(SPY)
    own.chmod(0o755)
    monkeypatch.setenv("PATH", f"{own.parent}:/usr/bin:/bin")
    assert stacks.py_spy(release) == stacks.PySpy(str(own), trusted=True)
    assert ": stack of dump" in stacks.PySpy(str(own), trusted=True).dump(1, 5.0)
    monkeypatch.setenv("PATH", f"{folder}/venv/bin:/usr/bin:/bin")
    assert stacks.py_spy(release) == stacks.PySpy(f"{folder}/venv/bin/py-spy", trusted=False)
    own.unlink()
    own.symlink_to(folder / "venv/bin/py-spy")
    monkeypatch.setenv("PATH", f"{own.parent}:/usr/bin:/bin")
    found = stacks.py_spy(release)
    assert found is not None and not found.trusted


def test_without_py_spy_nothing_is_taken(release: Path, folder: Path, tmp_path: Path) -> None:
    os.unlink(folder / "venv/bin/py-spy")
    assert stacks.take(tmp_path, release, 2, [process(2, "sglang::scheduler")]) == []
    (release / "manifest.json").unlink()
    assert stacks.py_spy(release) is None
