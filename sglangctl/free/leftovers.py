"""Leftovers of an ended engine: shared memory, JIT locks, its port.

Always listed; removed only when proven to be of the ended processes: a segment of its user's own that one of the ended
processes had mapped (segments.py) and that nobody has now; a stale lock (jit_locks.py) of an
ended process's user in the cache that it named.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from sglangctl.free import jit_locks
from sglangctl.free import segments as shm
from sglangctl.free.model import Leftover
from sglangctl.proc import procfs
from sglangctl.proc.mounts import Mounts

CACHES = ("TORCH_EXTENSIONS_DIR", "FLASHINFER_WORKSPACE_BASE", "SGLANG_CACHE_DIR")
IN_CACHE = ("torch_extensions", "flashinfer", "sglang", "vllm", "tvm-ffi")
WALK_S = 2.0
"""A cache on a slow network file system must not hold up the freeing."""


@dataclass
class Belongings:
    """Collected before the processes are ended."""

    segments: set[shm.Segment] = field(default_factory=set)
    caches: set[tuple[str, int]] = field(default_factory=set)
    """Cache folder, and the user whose process named it: of others nothing is removed there."""


def collect(pids: Iterable[int]) -> Belongings:
    """What these processes have in shared memory, and where their caches are."""
    found = Belongings()
    for pid in pids:
        uid = procfs.uid(pid)
        if uid is None:
            continue
        found.segments |= shm.of_process(pid, uid)
        found.caches.update((cache, uid) for cache in _caches(pid))
    return found


def remove(belongings: Belongings) -> list[Leftover]:
    """Remove what is proven to be of the ended processes, and list the rest."""
    return [*_segments(belongings), *_locks(belongings.caches)]


def _segments(belongings: Belongings) -> Iterator[Leftover]:
    left = shm.there(belongings.segments)
    users = shm.users(left) if left else {}
    for segment in left:
        if segment in users:
            yield Leftover("shm", segment.path, f"in use by {users[segment]}: left alone")
        else:
            yield _unlinked(segment, "only processes that are gone had it mapped")


def _locks(caches: Iterable[tuple[str, int]]) -> Iterator[Leftover]:
    caches = list(caches)
    folders = [Path(cache) for cache in sorted({cache for cache, _ in caches})]
    for lock in jit_locks.find(folders, WALK_S):
        owners = {uid for cache, uid in caches if lock.path.startswith(cache.rstrip("/") + "/")}
        if lock.state != jit_locks.STALE:
            yield Leftover("jit-lock", lock.path, f"{lock.reason}: left alone")
        elif lock.uid not in owners:
            yield Leftover("jit-lock", lock.path, f"of another user ({lock.uid}): left alone")
        elif jit_locks.remove(lock):
            note = "a build that was killed left it, nobody holds it"
            yield Leftover("jit-lock", lock.path, note, removed=True)
        elif os.path.lexists(lock.path):
            note = "it was taken meanwhile, or cannot be removed: left alone"
            yield Leftover("jit-lock", lock.path, note)


def _caches(pid: int) -> Iterator[str]:
    """The cache folders that a process's environment names."""
    environment = dict(
        entry.split("=", 1)
        for entry in (procfs.read_text(pid, "environ") or "").split("\0")
        if "=" in entry
    )
    yield from caches_of(environment)


def caches_of(environment: dict[str, str]) -> list[str]:
    """Folders in which engines compile, from their environment; of those on a local file system
    only what exists (another one is not touched: its server may be dead)."""
    roots = [environment[name] for name in CACHES if environment.get(name)]
    home = environment.get("XDG_CACHE_HOME")
    if not home and environment.get("HOME"):
        home = environment["HOME"] + "/.cache"
    if home:
        roots += [f"{home}/{name}" for name in IN_CACHE]
    mounts = Mounts()
    places = [mounts.place(root) for root in roots if os.path.isabs(root)]
    return [place.path for place in places if not place.local or os.path.isdir(place.path)]


def _unlinked(segment: shm.Segment, reason: str) -> Leftover:
    try:
        shm.unlink(segment)
    except OSError as error:
        note = f"{reason}, but it cannot be removed: {error.strerror or error}"
        return Leftover("shm", segment.path, note)
    return Leftover("shm", segment.path, reason, removed=True)
