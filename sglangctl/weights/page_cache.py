"""Read a model's weights into the page cache, so that the next engine to load them reads memory.

With the rights of the engine's user, in a process of its own: a file of the folder may be a link to
what root alone can read, and reading that may change the machine, or never end.
"""

from __future__ import annotations

import mmap
import os
import struct
import time
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Callable

from sglangctl.proc import as_user
from sglangctl.util.heartbeat import heartbeat
from sglangctl.util.plain_files import descriptor

CHUNK = 8 << 20
WEIGHTS = (".safetensors", ".bin", ".gguf", ".pth")
BEAT_S = 5.0
LATE_S = 30.0
"""Beyond a limit, for a read that waits: then the reading is left behind."""
BOTH = "qq"
"""Bytes that were read, and of all."""


@dataclass(frozen=True)
class Warmed:
    """Bytes that were read, of all that there are; `why`: what ended it before, None where nothing
    did."""

    read: int
    total: int
    why: str | None = None


def warm_as(
    user: str, folders: Iterable[str], room: int, limit_s: float, say: Callable[[str], object]
) -> Warmed:
    """Read the weight files in some folders as `user` can, and tell every ten seconds how far it is.
    `room` and `limit_s` as in `warm`. KeyError (no such user), PermissionError, as_user.NoAnswer."""
    with mmap.mmap(-1, struct.calcsize(BOTH)) as seen:  # shared with the process that reads

        def read() -> object:
            return asdict(
                warm(
                    files_of(folders),
                    room,
                    limit_s,
                    lambda *at: struct.pack_into(BOTH, seen, 0, *at),
                )
            )

        def what() -> str:
            done, total = struct.unpack_from(BOTH, seen)
            return f"the weights in the page cache: {in_gb(done)} of {in_gb(total)}"

        with heartbeat(say, what, limit_s):
            return Warmed(**as_user.ask(user, read, limit_s + LATE_S))


def in_gb(size: int) -> str:
    return f"{size / 1e9:,.1f} GB"


def files_of(folders: Iterable[str]) -> list[tuple[Path, int]]:
    """The weight files in some folders, by name, with their size in bytes; what cannot be looked at is
    left out."""
    found = []
    for folder in folders:
        try:
            with os.scandir(folder) as entries:
                named = sorted(
                    (Path(entry.path), entry.stat().st_size)
                    for entry in entries
                    if entry.name.endswith(WEIGHTS) and entry.is_file()
                )
        except OSError:
            continue
        found += named
    return found


def warm(
    files: Iterable[tuple[Path, int]],
    room: int,
    limit_s: float,
    progress: Callable[[int, int], None],
    clock: Callable[[], float] = time.monotonic,
) -> Warmed:
    """Read `files` once, in their order, at most `room` bytes and `limit_s` seconds.

    `progress` gets (bytes read, bytes of all) every few seconds. Never raises for a file that cannot
    be read: the engine says it better.
    """
    files = list(files)
    total, done = sum(size for _, size in files), 0
    progress(done, total)
    began = told = clock()
    buffer = memoryview(bytearray(CHUNK))
    for path, _ in files:
        try:
            source = open(descriptor(path), "rb", buffering=0)  # noqa: SIM115 (closed below)
        except OSError as error:
            return Warmed(done, total, f"{path.name} cannot be read: {error.strerror}")
        with source:
            while True:
                if done >= room:
                    return Warmed(done, total, "there is no more memory for it")
                now = clock()
                if now - began >= limit_s:
                    return Warmed(done, total, f"it took longer than {limit_s:.0f} s")
                if now - told >= BEAT_S:
                    told = now
                    progress(done, total)
                try:
                    count = source.readinto(buffer[: min(CHUNK, room - done)]) or 0
                except OSError as error:
                    return Warmed(done, total, f"{path.name} cannot be read: {error.strerror}")
                if not count:
                    break
                done += count
    return Warmed(done, total)
