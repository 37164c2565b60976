"""The out-of-memory killer's counters in the layouts of cgroup v1, hybrid and v2."""

from __future__ import annotations

import os
import socket
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


@pytest.mark.parametrize(
    "text",
    [
        "Memory cgroup out of memory: Killed process 4711 (sglang::schedul) total-vm:1kB",
        "Out of memory: Killed process 4711 (python3) total-vm:1kB, anon-rss:1kB",
        "Out of memory (oom_kill_allocating_task): Killed process 4711 (python3) total-vm:1kB",
        "Killed process 4711 (python3), UID 0, total-vm:1kB",  # Linux 4.18
    ],
)
def test_the_kernel_s_words_for_a_kill(text: str) -> None:
    found = oom.KILLED.match(text)
    assert found is not None and found[1] == "4711"


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("NVRM: Xid (PCI:0000:c1:00): 79, pid=1, GPU has fallen off the bus.", "79"),
        ("NVRM: Xid (PCI:0000:C1:00.0): 13, Graphics Exception", "13"),
        # A process that called itself so and broke off: its name stands first.
        ("NVRM: Xid (): 9[812]: segfault at 0 ip 0 sp 0 error 4 in a[1000+1000]", None),
        ("traps: NVRM: Xid (PCI:0000:c1:00): 79", None),
    ],
)
def test_an_xid_is_the_driver_s_own_line_with_a_pci_address(text: str, number: str | None) -> None:
    found = oom.XID.match(text)
    assert (found and found["number"]) == number


def test_only_what_the_kernel_itself_wrote_since_then() -> None:
    text = "NVRM: Xid (PCI:0000:c1:00): 79"
    assert oom.message_of(f"4,1,5000000,-;{text}", 4.0) == text
    assert oom.message_of(f"4,1,3000000,-;{text}", 4.0) == ""
    # Of a program that may write there: the kernel gives it the facility "user", or its own.
    assert oom.message_of(f"12,1,5000000,-;{text}", 4.0) == ""
    assert oom.message_of(f"28,1,5000000,-;{text}", 4.0) == ""
    assert oom.message_of("nonsense", 4.0) == ""
    assert oom.message_of(f"²,1,5000000,-;{text}", 4.0) == ""


def test_a_record_that_only_quotes_the_kernel_counts_for_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The whole way from the device, which gives one record for each read."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
    with ours, theirs:
        for level, text in (
            (4, "NVRM: Xid (PCI:0000:c1:00): 79, pid=1"),
            (4, "evil: NVRM: Xid (PCI:0000:c2:00): 48, pid=1"),
            (12, "NVRM: Xid (PCI:0000:c3:00): 48, pid=1"),
            (4, "nvrm: xid (PCI:0000:C4:00): 31, pid=1"),
            (6, "usb 1-1: new high-speed device"),
            (3, "Out of memory: Killed process 42 (a)"),
            (4, "evil: Out of memory: Killed process 43 (a)"),
            (11, "Out of memory: Killed process 44 (a)"),
        ):
            theirs.send(f"{level},1,5000000,-;{text}\n".encode())
        ours.setblocking(False)
        monkeypatch.setattr(oom.os, "open", lambda *words: os.dup(ours.fileno()))
        found = oom.kernel_log(4.0)
    assert found == oom.Kernel((42,), (("0000:c1:00", 79), ("0000:c4:00", 31)))
