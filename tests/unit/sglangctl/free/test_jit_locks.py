"""Locks of JIT compilers: with real processes that hold, and that died holding."""

from __future__ import annotations

import ctypes
import fcntl
import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from sglangctl.cli import main
from sglangctl.free import jit_locks
from tests.support.tools import leave_out

# As torch.utils.file_baton does it.
TAKE = "import os,sys,time; os.open(sys.argv[1], os.O_CREAT|os.O_EXCL); print(1, flush=True); "
SEES_ALL = os.geteuid() == 0


def holder(path: Path, then: str = "time.sleep(60)") -> subprocess.Popen[bytes]:
    process = subprocess.Popen(
        [sys.executable, "-c", TAKE + then, str(path)], stdout=subprocess.PIPE
    )
    assert process.stdout is not None
    assert process.stdout.readline() == b"1\n"
    return process


@pytest.fixture
def everything_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    """As root on a host: only this user's processes count where the tests are not root."""
    if not SEES_ALL:
        real = jit_locks._open_files
        monkeypatch.setattr(jit_locks, "_open_files", lambda wanted: (real(wanted)[0], True))


@pytest.mark.usefixtures("everything_is_seen")
def test_a_held_lock_is_left_alone_and_a_dead_one_removed(tmp_path: Path) -> None:
    path = tmp_path / "ops" / "lock"
    path.parent.mkdir()
    process = holder(path)
    (held,) = jit_locks.find([tmp_path])
    assert (held.state, held.pids) == ("held", (process.pid,))
    assert not jit_locks.remove(held)

    process.kill()
    process.wait()
    (stale,) = jit_locks.find([tmp_path])
    assert stale.state == "stale"
    assert jit_locks.remove(stale)
    assert not path.exists()
    assert list(path.parent.iterdir()) == []


@pytest.mark.usefixtures("everything_is_seen")
def test_a_lock_that_was_taken_again_since_is_not_removed(tmp_path: Path) -> None:
    path = tmp_path / "lock"
    path.write_bytes(b"")
    (stale,) = jit_locks.find([tmp_path])
    path.unlink()
    (tmp_path / "other").write_bytes(b"")  # so that the inode is not given out again
    process = holder(path)
    try:
        assert not jit_locks.remove(stale)
        assert path.exists()
        (now,) = jit_locks.find([tmp_path])
        assert now.pids == (process.pid,)
    finally:
        process.kill()
        process.wait()


@pytest.mark.usefixtures("everything_is_seen")
def test_a_lock_that_is_opened_again_as_the_same_file_is_not_removed(tmp_path: Path) -> None:
    path = tmp_path / "lock"
    path.write_bytes(b"")
    (stale,) = jit_locks.find([tmp_path])
    with open(path):
        assert not jit_locks.remove(stale)
    assert path.exists()


def test_flock_files_do_no_harm_and_are_not_listed(tmp_path: Path) -> None:
    path = tmp_path / "flashinfer_jit.lock"
    with open(path, "w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
    assert jit_locks.find([tmp_path]) == []


def test_without_the_right_to_see_all_it_is_unknown(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "lock").write_bytes(b"")
    monkeypatch.setattr(jit_locks, "_open_files", lambda wanted: ({}, False))
    (lock,) = jit_locks.find([tmp_path])
    assert (lock.state, jit_locks.remove(lock)) == ("unknown", False)
    assert (tmp_path / "lock").exists()


@pytest.mark.usefixtures("everything_is_seen")
def test_on_a_shared_file_system_it_is_unknown(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And not looked at: its server may be dead. By the mounts alone, also through a link."""
    away, near = tmp_path / "away", tmp_path / "near"
    for folder in (away, near):
        folder.mkdir()
        (folder / "lock").write_bytes(b"")
    (tmp_path / "link").symlink_to(away)
    (near / "inner").mkdir()
    (near / "inner/lock").write_bytes(b"")
    mounts = jit_locks.Mounts()
    mounts.kinds.update({str(away): "nfs4", str(near / "inner"): "fuse.sshfs"})
    monkeypatch.setattr(jit_locks, "Mounts", lambda pid=None: mounts)
    for folder in (away, tmp_path / "link/deeper", tmp_path / "near/../link"):
        (lock,) = jit_locks.find([folder])
        assert (lock.path, lock.state) == (str(away), "unknown")
        assert "another machine" in lock.reason and "nfs4" in lock.reason
    assert [lock.path for lock in jit_locks.find([near])] == [str(near / "lock")]


@pytest.fixture
def dead_mount(tmp_path: Path) -> Iterator[Path]:
    """A file system whose server never answers."""
    point = tmp_path / "dead"
    point.mkdir()
    try:
        server = os.open("/dev/fuse", os.O_RDWR)
    except OSError:
        leave_out("no FUSE here")
    libc = ctypes.CDLL(None, use_errno=True)
    options = f"fd={server},rootmode=40000,user_id=0,group_id=0".encode()
    if libc.mount(b"dead", os.fsencode(point), b"fuse", 0, options):
        os.close(server)
        leave_out("no mounts here")
    yield point
    os.close(server)
    libc.umount2(os.fsencode(point), 2)


def test_a_dead_mount_holds_nobody_up(dead_mount: Path) -> None:
    """Named as a cache, and below one."""
    local = dead_mount.parent / "cache"
    (local / "dead").mkdir(parents=True)
    subprocess.run(["mount", "--bind", dead_mount, local / "dead"], check=True)
    (local / "lock").write_bytes(b"")
    (dead_mount.parent / "lock").write_bytes(b"")
    program = (
        "import sys; from pathlib import Path; from sglangctl.free import jit_locks, leftovers;"
        "print([lock.path for lock in jit_locks.find(map(Path, sys.argv[1:]))]);"
        "print(leftovers.caches_of({'SGLANG_CACHE_DIR': sys.argv[1]}))"
    )
    try:
        done = subprocess.run(
            [sys.executable, "-c", program, dead_mount / "cache", local],
            stdout=subprocess.PIPE,
            timeout=30,
            check=True,
            text=True,
        )
    finally:
        subprocess.run(["umount", "-l", local / "dead"], check=True)
    assert done.stdout.splitlines() == [
        str(sorted([str(dead_mount), str(local / "lock")])),
        str([str(dead_mount / "cache")]),
    ]


def test_links_and_folders_named_lock_are_not_locks(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "a/lock").symlink_to("/etc/passwd")
    (tmp_path / "b/lock").mkdir(parents=True)
    assert jit_locks.find([tmp_path, tmp_path / "none"]) == []


@pytest.mark.usefixtures("everything_is_seen")
def test_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "lock").write_bytes(b"")
    assert main(["kernel", "locks", str(tmp_path)]) == 0
    assert capsys.readouterr().out.startswith("stale")
    assert (tmp_path / "lock").exists()
    assert main(["kernel", "locks", str(tmp_path), "--clean", "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["removed"] == [str(tmp_path / "lock")]
    assert not (tmp_path / "lock").exists()
    began = time.monotonic()
    assert main(["kernel", "locks", str(tmp_path)]) == 0
    assert "no lock" in capsys.readouterr().out
    assert time.monotonic() - began < 5


@pytest.mark.usefixtures("everything_is_seen")
def test_a_folder_that_became_a_link_is_not_followed(tmp_path: Path) -> None:
    """Whoever owns the cache may point it to a folder of root's with a file `lock` in it."""
    (tmp_path / "cache").mkdir()
    (tmp_path / "cache/lock").write_bytes(b"")
    (lock,) = jit_locks.find([tmp_path / "cache"])
    (tmp_path / "cache").rename(tmp_path / "away")
    victim = tmp_path / "victim/lock"
    victim.parent.mkdir()
    victim.write_bytes(b"")
    (tmp_path / "cache").symlink_to(victim.parent)
    before = victim.stat().st_ctime_ns
    assert not jit_locks.remove(lock)
    (tmp_path / "cache").unlink()
    (tmp_path / "cache").symlink_to(tmp_path)  # one level up: it is opened, and it is another file
    assert not jit_locks.remove(replace(lock, path=str(tmp_path / "cache/victim/lock")))
    assert victim.stat().st_ctime_ns == before  # not even moved away and back
    assert (tmp_path / "away/lock").exists()


@pytest.mark.slow
@pytest.mark.usefixtures("everything_is_seen")
def test_folders_as_deep_as_they_like(tmp_path: Path) -> None:
    """2,500 nested folders: deeper than Python's stack. The lock beside them is still found."""
    (tmp_path / "z").mkdir()
    (tmp_path / "z/lock").write_bytes(b"")
    here = os.open(".", os.O_RDONLY)
    try:
        os.chdir(tmp_path)
        for _ in range(2500):
            os.mkdir("a")
            os.chdir("a")
    finally:
        os.fchdir(here)
        os.close(here)
    try:
        (lock,) = jit_locks.find([tmp_path])
        assert lock.path == str(tmp_path / "z/lock")
    finally:
        subprocess.run(["rm", "-rf", "--", str(tmp_path / "a")], check=True)
