"""CUDA's pipes: those of ended processes go, and nothing else of that name does."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from sglangctl.watch import pipes


@pytest.fixture
def gone() -> int:
    """The number of a process that has ended."""
    child = subprocess.Popen(["true"])
    child.wait()
    return child.pid


def test_only_pipes_of_ended_processes_go(tmp_path: Path, gone: int) -> None:
    mine = {f"corepipe.cuda.h.{os.getpid()}", f"corepipe_h_{os.getpid()}"}
    left = {f"corepipe.cuda.a.b.{gone}", f"corepipe_vm_{gone}", f"corepipe_a_b.c_{gone}"}
    for name in (*mine, *left):
        os.mkfifo(tmp_path / name)
    others = {f"corepipe.cuda.h.{gone}", f"corepipe_{gone}", "corepipe.cuda.h.x", "triton"}
    for name in others:
        (tmp_path / name).write_text("no pipe, or none of CUDA's")
    (tmp_path / f"corepipe.cuda.link.{gone}").symlink_to(f"corepipe_h_{os.getpid()}")
    assert pipes.remove(str(tmp_path)) == sorted(left)
    there = {path.name for path in tmp_path.iterdir()}
    assert there == {*mine, f"corepipe.cuda.link.{gone}", *others}
    assert pipes.remove(str(tmp_path)) == []


def test_a_pipe_of_somebody_else_stays(
    tmp_path: Path, gone: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / f"corepipe.cuda.h.{gone}"
    os.mkfifo(path)
    theirs = os.stat_result((*os.stat(tmp_path)[:4], os.getuid() + 1, *os.stat(tmp_path)[5:10]))
    monkeypatch.setattr(os, "fstat", lambda fd: theirs)
    assert pipes.remove(str(tmp_path)) == []
    assert path.exists()


def test_a_folder_that_is_gone_has_none(tmp_path: Path) -> None:
    assert pipes.remove(str(tmp_path / "no")) == []


def test_a_pipe_that_its_process_removes_meanwhile_is_none(
    tmp_path: Path, gone: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The other ranks end at the same time as the main process."""
    left = tmp_path / f"corepipe_h_{gone}"
    os.mkfifo(left)
    listed = os.listdir
    monkeypatch.setattr(os, "listdir", lambda fd: [f"corepipe_a_{gone}", *listed(fd)])
    assert pipes.remove(str(tmp_path)) == [left.name]
