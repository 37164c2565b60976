"""The out-of-memory killer's counters in the layouts of cgroup v1, hybrid and v2."""

from __future__ import annotations

from pathlib import Path

import pytest

from sglangctl.proc import oom, procfs

V1 = "9:name=systemd:/system.slice/a.service\n4:cpu,memory:/docker/x\n0::/system.slice/a.service\n"
V2 = "0::/system.slice/a.service\n"


@pytest.fixture
def proc(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(procfs, "PROC", str(tmp_path / "proc"))
    folder = tmp_path / "proc/7"
    folder.mkdir(parents=True)
    return folder / "cgroup"


def counted(folder: Path, name: str, kills: int) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    text = f"oom_kill_disable 0\nunder_oom 0\noom_kill {kills}\n"
    if name == "memory.events":
        text = f"low 0\nhigh 0\nmax 9\noom 3\noom_kill {kills}\noom_group_kill 0\n"
    (folder / name).write_text(text)
    return folder


def test_v1_counts_in_the_memory_controller_s_own_hierarchy(proc: Path, tmp_path: Path) -> None:
    proc.write_text(V1)
    root = tmp_path / "cgroup"
    leaf = counted(root / "memory/docker/x", "memory.oom_control", 4)
    top = counted(root / "memory", "memory.oom_control", 9)
    assert oom.memory_folder(7, root) == leaf
    counter = oom.Counter(leaf)
    counted(top, "memory.oom_control", 12)
    assert counter.kills() == 0  # another cgroup's
    counted(leaf, "memory.oom_control", 5)
    assert counter.kills() == 1


def test_v2_counts_in_memory_events(proc: Path, tmp_path: Path) -> None:
    proc.write_text(V2)
    root = tmp_path / "cgroup"
    leaf = counted(root / "system.slice/a.service", "memory.events", 0)
    counted(root / "system.slice", "memory.events", 2)
    assert oom.memory_folder(7, root) == leaf
    counter = oom.Counter(leaf)
    counted(root / "system.slice", "memory.events", 9)  # a neighbour's
    assert counter.kills() == 0
    counted(leaf, "memory.events", 2)
    assert counter.kills() == 2


def test_the_nearest_above_where_the_own_does_not_count(proc: Path, tmp_path: Path) -> None:
    proc.write_text(V1)
    root = tmp_path / "cgroup"
    (root / "memory/docker/x").mkdir(parents=True)
    top = counted(root / "memory", "memory.oom_control", 0)
    assert oom.memory_folder(7, root) == top


def test_no_counter_is_unknown_not_zero(proc: Path, tmp_path: Path) -> None:
    proc.write_text(V2)
    assert oom.memory_folder(7, tmp_path / "nothing") is None
    assert oom.Counter(None).kills() is None
    assert oom.memory_folder(99, tmp_path) is None  # a process that is gone


def test_a_cgroup_that_goes_away_meanwhile(proc: Path, tmp_path: Path) -> None:
    proc.write_text(V2)
    leaf = counted(tmp_path / "cgroup/system.slice/a.service", "memory.events", 1)
    counter = oom.Counter(leaf)
    (leaf / "memory.events").unlink()
    assert counter.kills() is None


def test_the_kernel_s_log() -> None:
    found = oom.kernel_log(since=1e9)  # a time that has not come yet
    assert found.killed in (None, ())
    assert oom.KILLED.findall(
        "Memory cgroup out of memory: Killed process 4711 (sglang::schedul) total-vm:1kB"
    ) == ["4711"]
    assert oom.XID.findall("NVRM: Xid (PCI:0000:c1:00): 79, pid=1, GPU has fallen") == ["79"]
