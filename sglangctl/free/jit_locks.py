"""Lock files that a killed JIT compiler left behind, and their removal when that is proven.

Two kinds lie in the caches of an engine. torch's cpp_extension takes a lock by making a file named
`lock` that must not exist, and keeps it open: when its process dies the file stays, and every later
start waits for it for ever. FlashInfer, SGLang and Triton take flock(2) on a file: the kernel drops
that with the process, so a file that is left over does no harm and is left alone.

A lock is stale when no process has it open. That can only be known with rights to see every
process and for a file system that no other machine can reach.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import math
import os
import stat
import time
from collections.abc import Iterable
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from sglangctl.proc import procfs
from sglangctl.proc.folders import folders_below
from sglangctl.util.terminal import harmless

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


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("folder", nargs="*", type=Path, help="default: the engines' caches")
    parser.add_argument("--clean", action="store_true", help="remove those that are stale")
    parser.add_argument("--json", action="store_true")


def run(args: argparse.Namespace) -> int:
    found = find(args.folder or default_folders())
    removed = [lock.path for lock in found if args.clean and remove(lock)]
    if args.json:
        print(json.dumps({"v": 1, "locks": [asdict(lock) for lock in found], "removed": removed}))
        return 0
    for lock in found:
        done = "removed" if lock.path in removed else lock.state
        print(harmless(f"{done:<8} {lock.path}: {lock.reason}"))
    if not found:
        print("no lock of a JIT compiler is left over")
    return 0


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
