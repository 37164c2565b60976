"""Lock files that a killed JIT compiler left behind, and their removal when that is proven.

See `sglangctl kernel locks --help` for the two kinds of locks, and when one is stale.
"""

from __future__ import annotations

import contextlib
import math
import os
import stat
import time
from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path

from sglangctl.proc import procfs
from sglangctl.proc.folders import folders_below

NAME = "lock"
SHARED = frozenset(
    ["nfs", "nfs4", "cifs", "smb3", "ceph", "lustre", "glusterfs", "fuse.glusterfs", "9p", "beegfs"]
)
"""File systems on which another machine may hold the lock."""
STALE, HELD, UNKNOWN = "stale", "held", "unknown"


@dataclass(frozen=True)
class Lock:
    """One lock file. `pids` hold it open; `device` and `inode` say which file was judged."""

    path: str
    state: str
    reason: str
    pids: tuple[int, ...] = ()
    device: int = 0
    inode: int = 0
    uid: int = -1
    """Whose file it is."""


def find(folders: Iterable[Path], walk_s: float = math.inf) -> list[Lock]:
    """The existence locks below `folders`, judged; a folder that is not there has none.

    `walk_s`: seconds after which it looks no further (a cache on a slow network file system).
    """
    end = time.monotonic() + walk_s
    seen: dict[tuple[int, int], tuple[str, int]] = {}
    for folder in folders:
        for root in folders_below(folder):
            if time.monotonic() > end:
                break
            path = os.path.join(root, NAME)
            try:
                status = os.lstat(path)
            except OSError:
                continue
            if stat.S_ISREG(status.st_mode):
                seen[status.st_dev, status.st_ino] = (path, status.st_uid)
    if not seen:
        return []
    holders, complete = _open_files(set(seen))
    mounts = _mounts()
    judged = [
        replace(_judge(path, *key, holders.get(key, []), complete, mounts), uid=uid)
        for key, (path, uid) in seen.items()
    ]
    return sorted(judged, key=lambda lock: lock.path)


def remove(lock: Lock) -> bool:
    """Remove a stale lock; False when it is another file by now (somebody has just taken it).

    It is moved away first and looked at again: between a look and an unlink the name could have
    become a fresh lock. All in its own folder, held open: whoever owns a folder above may put a
    link to elsewhere in its place meanwhile.
    """
    if lock.state != STALE:
        return False
    flags = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
    try:
        folder = os.open(os.path.dirname(lock.path), flags)
    except OSError:
        return False
    try:
        return _is(lock, NAME, folder) and _remove_in(folder, lock)
    finally:
        os.close(folder)


def _remove_in(folder: int, lock: Lock) -> bool:
    aside = f"{NAME}.sglangctl-{os.getpid()}"
    try:
        os.rename(NAME, aside, src_dir_fd=folder, dst_dir_fd=folder)
    except OSError:
        return False
    holders, complete = _open_files({(lock.device, lock.inode)})
    stale = _is(lock, aside, folder) and not holders and complete
    with contextlib.suppress(OSError):
        if not stale:
            os.link(aside, NAME, src_dir_fd=folder, dst_dir_fd=folder, follow_symlinks=False)
    with contextlib.suppress(FileNotFoundError):
        os.unlink(aside, dir_fd=folder)
    return stale


def _is(lock: Lock, name: str, folder: int) -> bool:
    """Whether `name` in the open folder is the file that was judged."""
    try:
        status = os.stat(name, dir_fd=folder, follow_symlinks=False)
    except OSError:
        return False
    return (status.st_dev, status.st_ino) == (lock.device, lock.inode)


def default_folders() -> list[Path]:
    """The caches of this host's engines, and root's own."""
    from sglangctl.state.paths import Paths

    root = Paths().root
    caches = sorted((root / "var/cache/sglang").glob("*"))
    return [*caches, root / "root/.cache/torch_extensions"]


def _judge(
    path: str,
    device: int,
    inode: int,
    pids: list[int],
    complete: bool,
    mounts: dict[str, str],
) -> Lock:
    def lock(state: str, reason: str) -> Lock:
        return Lock(path, state, reason, tuple(pids), device, inode)

    if pids:
        return lock(HELD, f"open in process {', '.join(map(str, pids))}")
    kind = _file_system(path, mounts)
    if kind in SHARED:
        return lock(UNKNOWN, f"it lies on {kind}: another machine may hold it")
    if not complete:
        return lock(UNKNOWN, "not all processes can be seen: run it as root")
    return lock(STALE, "no process has it open: what waits for it waits for ever")


def _open_files(wanted: set[tuple[int, int]]) -> tuple[dict[tuple[int, int], list[int]], bool]:
    """(file -> processes that have it open, whether every process could be looked at)."""
    found: dict[tuple[int, int], list[int]] = {}
    complete = True
    for pid in procfs.pids():
        folder = f"{procfs.PROC}/{pid}/fd"
        try:
            names = os.listdir(folder)
        except PermissionError:
            complete = False
            continue
        except OSError:
            continue
        for name in names:
            try:
                status = os.stat(f"{folder}/{name}")
            except OSError:
                continue
            key = (status.st_dev, status.st_ino)
            if key in wanted and pid not in found.setdefault(key, []):
                found[key].append(pid)
    return {key: pids for key, pids in found.items() if pids}, complete


def _mounts() -> dict[str, str]:
    """Mount point -> file system type."""
    text = procfs.read_text(os.getpid(), "mountinfo") or ""
    found = {}
    for line in text.splitlines():
        before, _, after = line.partition(" - ")
        words = before.split()
        if len(words) >= 5 and after:
            found[words[4].encode().decode("unicode_escape")] = after.split()[0]
    return found


def _file_system(path: str, mounts: dict[str, str]) -> str:
    """The type of the file system that `path` lies on."""
    real = os.path.realpath(path)
    while real not in mounts and real != "/":
        real = os.path.dirname(real)
    return mounts.get(real, "unknown")
