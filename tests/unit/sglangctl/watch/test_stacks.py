"""Whose stacks are taken, by which program, and where they go."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from sglangctl.engine.processes import Process
from sglangctl.watch import stacks


def process(pid: int, name: str) -> Process:
    return Process(pid, name, "T", 0.0, 0, 1.0, 1)


@pytest.fixture
def release(tmp_path: Path) -> Path:
    venv = tmp_path / "venv"
    (venv / "bin").mkdir(parents=True)
    program = venv / "bin/py-spy"
    program.write_text('#!/bin/sh\necho "stack of $*"\necho oops >&2\n')
    program.chmod(0o755)
    (tmp_path / "release").mkdir()
    (tmp_path / "release/manifest.json").write_text(json.dumps({"v": 1, "venv": str(venv)}))
    return tmp_path / "release"


def test_ranks_detokenizer_and_main_process(release: Path, tmp_path: Path) -> None:
    found = [
        process(1, "/venv/bin/python -m sglang.launch_server"),
        process(2, "sglang::scheduler_TP0"),
        process(3, "sglang::detokenizer"),
        process(4, "ninja"),
    ]
    taken = stacks.take(tmp_path, release, 1, found)
    assert taken == ["stacks-1.txt", "stacks-2.txt", "stacks-3.txt"]
    text = (tmp_path / "stacks-2.txt").read_text()
    assert text == "# sglang::scheduler_TP0 (T)\nstack of dump --nonblocking --pid 2\noops\n"
    assert (tmp_path / "stacks-2.txt").stat().st_mode & 0o777 == 0o640


def test_without_py_spy_nothing_is_taken(
    release: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    os.unlink(tmp_path / "venv/bin/py-spy")
    monkeypatch.setenv("PATH", str(tmp_path))
    assert stacks.take(tmp_path, release, 2, [process(2, "sglang::scheduler")]) == []
    (release / "manifest.json").unlink()
    assert stacks.py_spy(release) is None
