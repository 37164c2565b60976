"""Starting, following and ending a build, with real processes and no systemd."""

from __future__ import annotations

import json
import os
import signal
import stat
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from roles.remote import program
from sglangctl.cli import main
from sglangctl.proc import procfs
from sglangctl.sgl_kernel.build import request, unit
from sglangctl.state import programs
from sglangctl.state.paths import Paths
from tests.support import own_rights
from tests.support.kernel_requests import a_request
from tests.support.waiting import until

NVCC = """#!/bin/sh
sleep {seconds}
echo 'Cuda compilation tools, release 13.0, V13.0.88'
"""


@pytest.fixture
def paths(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Paths]:
    monkeypatch.setenv("SGLANGCTL_ROOT", str(tmp_path))
    monkeypatch.setattr("sglangctl.systemd.systemctl.booted", lambda: False)
    monkeypatch.setattr(unit.programs, "again", own_rights.again)
    with tempfile.TemporaryDirectory() as made:  # root does not run it with its own rights
        Path(made).chmod(0o755)
        monkeypatch.setenv("CUDA_HOME", made)
        nvcc(seconds=0)
        yield Paths(tmp_path)


def nvcc(seconds: float) -> None:
    path = Path(os.environ["CUDA_HOME"]) / "bin/nvcc"
    path.parent.mkdir(exist_ok=True)
    path.write_text(NVCC.format(seconds=seconds))
    path.chmod(0o755)


def write(tmp_path: Path) -> tuple[str, str]:
    """(the request's file, its key): a build whose source does not exist."""
    wanted = a_request(git_url=str(tmp_path / "nothing"))
    (tmp_path / "request.json").write_text(request.dump(wanted))
    return str(tmp_path / "request.json"), wanted.key


def status(key: str, paths: Paths) -> str:
    """As who follows it to its end so far is told."""
    answer = unit.look_at(key, 0, paths)
    while answer.lines:
        answer = unit.look_at(key, answer.offset, paths)
    return answer.status


def wait_for(what: str, key: str, paths: Paths) -> None:
    until(lambda: status(key, paths) == what, 60)


def test_a_failed_build_says_why_and_what_next(
    paths: Paths, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file, key = write(tmp_path)
    assert main(["kernel", "build", file]) == 0
    assert capsys.readouterr().out == f"started {key}\n"
    assert main(["kernel", "build", "--follow", key]) == 1
    said = capsys.readouterr().out
    assert "source: aaaaaaaaaaaa of" in said
    assert "end: " in said
    assert str(tmp_path / "nothing") in said
    assert stat.S_IMODE((request.folder(key, paths) / "request.json").stat().st_mode) == 0o600

    assert main(["kernel", "build", "--follow", key, "--from", "0", "--wait", "5"]) == 0
    *lines, last = capsys.readouterr().out.splitlines()
    assert [json.loads(line)["step"] for line in lines][-1] == "end"
    mark, source, offset, ended = last.split()
    assert (mark, source, ended) == ("@", key, "1")
    assert int(offset) == (request.folder(key, paths) / "journal.jsonl").stat().st_size
    # Nothing is repeated.
    assert main(["kernel", "build", "--follow", key, "--from", offset, "--wait", "5"]) == 0
    assert capsys.readouterr().out == f"@ {key} {offset} 1\n"


@pytest.mark.slow
def test_a_second_start_does_not_see_the_end_of_the_first(paths: Paths, tmp_path: Path) -> None:
    file, key = write(tmp_path)
    assert main(["kernel", "build", file]) == 0
    wait_for("1", key, paths)
    until(lambda: not unit.running(key, paths))
    nvcc(seconds=2)
    assert main(["kernel", "build", file]) == 0
    assert status(key, paths) == "-"
    wait_for("1", key, paths)


def test_two_starts_are_one_build_and_a_killed_one_is_gone(
    paths: Paths, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    nvcc(seconds=30)
    file, key = write(tmp_path)
    assert main(["kernel", "build", file]) == 0
    assert main(["kernel", "build", file]) == 0
    assert capsys.readouterr().out == f"started {key}\nrunning {key}\n"
    pid = int((request.folder(key, paths) / "pid").read_text().split()[0])
    assert procfs.stat(pid) is not None
    os.killpg(pid, signal.SIGKILL)
    wait_for("gone", key, paths)
    assert main(["kernel", "build", "--follow", key]) == 1
    assert "start it again" in capsys.readouterr().out


@pytest.mark.parametrize("option", ["--run", "--follow"])
def test_what_is_no_key_is_refused(
    paths: Paths, option: str, capsys: pytest.CaptureFixture[str]
) -> None:
    del paths
    assert main(["kernel", "build", option, "../../etc"]) == 2
    assert "not a key" in capsys.readouterr().err


def test_an_empty_cache_is_listed(paths: Paths, capsys: pytest.CaptureFixture[str]) -> None:
    del paths
    assert main(["kernel", "build", "--list"]) == 0
    assert "no kernel was built here" in capsys.readouterr().out
    assert main(["kernel", "build", "--list", "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == {"v": 1, "kernels": []}


def test_the_unit_is_out_of_the_way() -> None:
    options = unit.properties(a_request(runtime_max_s=77))
    values = dict(one.removeprefix("--property=").split("=", 1) for one in options if "=" in one)
    assert values["CPUWeight"] == values["IOWeight"] == "20"
    assert int(values["RuntimeMaxSec"]) > 77, "the work's own limit says what happened"
    work = dict(one.split("=", 1) for one in unit.limits(a_request().key))
    assert work["CPUWeight"] == work["IOWeight"] == "20"
    assert work["MemoryMax"].endswith("M")
    assert work["MemorySwapMax"] == "0"
    assert work["OOMPolicy"] == "continue", "a killed compiler must not end the build"
    assert f"--unit=sglangctl-build-{a_request().key}.service" in options


def test_the_build_s_process_is_this_very_program(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On a host the modules come through a descriptor, so only argv tells the file."""
    path = tmp_path / "0123456789abcdef.pyz"
    path.write_bytes(program.archive())
    (tmp_path / "sglangctl").symlink_to(path)
    monkeypatch.setattr("sys.argv", [str(tmp_path / "sglangctl")])
    assert programs.again()[1:] == ["-I", "-S", str(path)]
    done = subprocess.run(
        [*programs.again(), "kernel", "build", "--list"],
        capture_output=True,
        text=True,
        cwd=tmp_path,
        env={"SGLANGCTL_ROOT": str(tmp_path), "PATH": os.environ["PATH"]},
    )
    assert "no kernel was built here" in done.stdout
