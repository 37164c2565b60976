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
from sglangctl.proc.mounts import LOCAL, Mounts, kind_of_open

NAME = "lock"
SCAN_S = 10.0
"""For looking who has locks open: how many files others have open is their own choice."""
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
    """The existence locks below `folders`, judged; a folder that does not exist has none.

    Only of local file systems (proc/mounts): of any other one entry says that it was not looked at.
    `walk_s`: seconds after which it looks no further.
    """
    end = time.monotonic() + walk_s
    seen: dict[tuple[int, int], tuple[str, int]] = {}
    mounts = Mounts()
    away: dict[str, Lock] = {}
    for folder in folders:
        place = mounts.place(os.path.abspath(folder))
        if not place.local:
            why = f"caches on {place.kind} are not looked at: another machine may hold their locks"
            away[place.point] = Lock(place.point, UNKNOWN, why)
            continue
        for root in folders_below(Path(place.path), mounts.kinds):
            if time.monotonic() > end:
                break
            path = os.path.join(root, NAME)
            try:
                status = os.lstat(path)
            except OSError:
                continue
            if stat.S_ISREG(status.st_mode):
                seen[status.st_dev, status.st_ino] = (path, status.st_uid)
    holders, complete = _open_files(set(seen)) if seen else ({}, True)
    judged = [
        replace(_judge(path, *key, holders.get(key, []), complete), uid=uid)
        for key, (path, uid) in seen.items()
    ]
    return sorted([*judged, *away.values()], key=lambda lock: lock.path)


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
) -> Lock:
    def lock(state: str, reason: str) -> Lock:
        return Lock(path, state, reason, tuple(pids), device, inode)

    if pids:
        return lock(HELD, f"open in process {', '.join(map(str, pids))}")
    if not complete:
        return lock(UNKNOWN, "not all processes could be looked at (root may see them all)")
    return lock(STALE, "no process has it open: whatever waits for it waits forever")


def _open_files(wanted: set[tuple[int, int]]) -> tuple[dict[tuple[int, int], list[int]], bool]:
    """(file -> processes that have it open, whether every process could be looked at).

    By the link's name first, and of local file systems alone: asked for a file on a dead network
    mount, the kernel does not answer.
    """
    end = time.monotonic() + SCAN_S
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
        mounts: Mounts | None = None
        for name in names:
            if time.monotonic() > end:
                return found, False
            try:
                target = os.readlink(f"{folder}/{name}")
            except OSError:
                continue
            if not target.rpartition("/")[2].startswith(NAME):
                continue
            mounts = mounts or Mounts(pid)
            kind = kind_of_open(pid, name, mounts)
            if kind not in LOCAL or (kind == "overlay" and not _in_our_namespace(pid)):
                # A user's own overlay may lie on anything; none of ours is seen there.
                complete = complete and kind != "unknown"
                continue
            try:
                status = os.stat(f"{folder}/{name}")
            except OSError:
                continue
            key = (status.st_dev, status.st_ino)
            if key in wanted and pid not in found.setdefault(key, []):
                found[key].append(pid)
    return {key: pids for key, pids in found.items() if pids}, complete


def _in_our_namespace(pid: int) -> bool:
    """Whether a process sees the mounts that we see."""
    try:
        return os.readlink(f"{procfs.PROC}/{pid}/ns/mnt") == os.readlink(
            f"{procfs.PROC}/self/ns/mnt"
        )
    except OSError:
        return False
