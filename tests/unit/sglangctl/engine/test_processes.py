"""The engine's processes, looked at for real."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from sglangctl.engine import processes
from sglangctl.engine.processes import Collector, in_group_of, is_helper, ranks_alive, shape, wrong
from sglangctl.proc import procfs
from tests.support.waiting import until


@pytest.fixture
def rank() -> Iterator[subprocess.Popen[bytes]]:
    with subprocess.Popen(
        ["sglang::scheduler_TP0"], executable="/bin/cat", stdin=subprocess.PIPE
    ) as process:
        titled(process.pid)
        yield process
        process.kill()


def titled(pid: int) -> None:
    until(lambda: procfs.cmdline(pid) == ["sglang::scheduler_TP0"])


def state_of(pid: int, wanted: str) -> None:
    until(lambda: (found := procfs.stat(pid)) is not None and found.state == wanted)


def test_state_name_and_numbers(rank: subprocess.Popen[bytes]) -> None:
    state_of(rank.pid, "S")
    (found,) = Collector().sample([rank.pid, 4194300])
    assert (found.pid, found.name, found.state) == (rank.pid, "sglang::scheduler_TP0", "S")
    assert found.read_bytes is not None and found.rss_mib > 0
    assert ranks_alive([found]) == 1 and wrong([found]) == []


def test_stopped_and_dead_ranks_are_named(rank: subprocess.Popen[bytes]) -> None:
    collector = Collector()
    alive = collector.sample([rank.pid])
    rank.send_signal(signal.SIGSTOP)
    state_of(rank.pid, "T")
    stopped = collector.sample([rank.pid])
    assert wrong(stopped) == [f"sglang::scheduler_TP0 (pid {rank.pid}) is stopped"]
    assert shape(alive) != shape(stopped)
    rank.kill()
    state_of(rank.pid, "Z")
    dead = collector.sample([rank.pid])
    # A zombie has no command line: its name is remembered.
    assert wrong(dead) == [f"sglang::scheduler_TP0 (pid {rank.pid}) is dead"]
    assert ranks_alive(dead) == 0


def test_no_title_no_count(rank: subprocess.Popen[bytes]) -> None:
    assert ranks_alive(Collector().sample([os.getpid()])) is None


def test_running_and_sleeping_is_no_change() -> None:
    found = Collector().sample([os.getpid()])
    assert shape(found) == shape([type(found[0])(**{**vars(found[0]), "state": "D"})])


def test_a_group_and_its_descendants_in_other_sessions() -> None:
    script = "setsid sleep 60 & sleep 60 & wait"
    with subprocess.Popen(["sh", "-c", script], start_new_session=True) as shell:
        until(lambda: len(in_group_of(shell.pid)) >= 3)
        members = in_group_of(shell.pid)
        assert shell.pid in members and os.getpid() not in members
        for pid in members:
            os.kill(pid, signal.SIGKILL)
    assert in_group_of(shell.pid) == []


@pytest.mark.parametrize(
    ("line", "helper"),
    [
        ("python3 -I -S /usr/local/bin/sglangctl wait tiny", True),
        ("/usr/bin/python3 -I -S /usr/local/lib/sglangctl/ab.pyz wait tiny", True),
        ("/usr/bin/python3 -m sglang.launch_server --config x", False),
        ("python3 tool.py wait sglangctl", False),
        ("sglang::scheduler", False),
    ],
)
def test_our_own_helper_in_the_unit_s_cgroup_is_left_out(line: str, helper: bool) -> None:
    assert is_helper(line.split()) is helper


def test_a_rank_that_left_the_cgroup_is_not_dead(rank: subprocess.Popen[bytes]) -> None:
    """Somebody moved it, or the list was read while it changed; another process may leave."""
    state_of(rank.pid, "S")
    collector = Collector()
    assert len(collector.sample([rank.pid, os.getpid()])) == 2
    for _ in range(2):
        (found,) = collector.sample([])
        assert (found.pid, found.state) == (rank.pid, "S")


def test_a_child_of_a_rank_is_no_rank_of_its_own(rank: subprocess.Popen[bytes]) -> None:
    """It has its parent's title, and may end as it likes."""
    state_of(rank.pid, "S")
    (found,) = Collector().sample([rank.pid])
    assert found.ppid == os.getpid()
    child = replace(found, pid=found.pid + 1, ppid=found.pid, state="Z")
    assert ranks_alive([found, child]) == 1 and wrong([found, child]) == []
    # The replicas' controller is the schedulers' parent: those are ranks.
    controller = replace(found, pid=2, name="sglang::data_parallel_controller")
    assert ranks_alive([controller, replace(found, ppid=2)]) == 1


def test_a_script_from_afar_is_known_by_the_end_of_its_path(tmp_path: Path) -> None:
    script = tmp_path / ("x" * 80) / "torch" / "_inductor" / "compile_worker" / "__main__.py"
    script.parent.mkdir(parents=True)
    script.write_text("import sys; print(flush=True); sys.stdin.read()", encoding="utf-8")
    command = [sys.executable, str(script), "--workers=32"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as worker:
        assert worker.stdout is not None
        worker.stdout.readline()
        (found,) = Collector().sample([worker.pid])
        worker.kill()
    assert found.name.endswith("torch/_inductor/compile_worker/__main__.py")
    assert len(found.name) <= 90


def test_a_zombie_that_the_cgroup_does_not_list_any_more(rank: subprocess.Popen[bytes]) -> None:
    collector = Collector()
    assert len(collector.sample([rank.pid])) == 1
    rank.kill()
    state_of(rank.pid, "Z")
    for _ in range(2):
        (dead,) = collector.sample([])
        assert (dead.name, dead.state, dead.exit_code) == ("sglang::scheduler_TP0", "Z", -9)
    rank.wait()
    assert collector.sample([]) == []


def test_how_a_zombie_ended() -> None:
    child = subprocess.Popen(["sleep", "60"])
    try:
        collector = Collector()
        until(lambda: procfs.cmdline(child.pid) == ["sleep", "60"])
        (alive,) = collector.sample([child.pid])
        assert "exit_code" not in alive.event()
        child.kill()
        state_of(child.pid, "Z")
        (found,) = collector.sample([child.pid])
        assert found.event()["exit_code"] == -9 and found.name == alive.name == "sleep 60"
    finally:
        child.kill()
        child.wait()


def test_of_an_engine_with_thousands_of_children_the_known_ones_are_looked_at(
    rank: subprocess.Popen[bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    looked: list[int] = []
    look = procfs.stat
    monkeypatch.setattr(procfs, "stat", lambda pid: (looked.append(pid), look(pid))[1])
    collector = Collector()
    assert [found.pid for found in collector.sample([rank.pid])] == [rank.pid]
    looked.clear()
    found = collector.sample([*range(5_000_000, 5_050_000), rank.pid])
    assert [one.pid for one in found] == [rank.pid] and len(looked) <= processes.MOST
