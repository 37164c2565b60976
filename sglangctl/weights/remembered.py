"""What was checked, by size, time of change and inode of each file, so that the next check of the
same files reads none of them."""

from __future__ import annotations

import hashlib
import json
import os
import stat
from pathlib import Path
from typing import Any

from sglangctl.state.files import write_atomic
from sglangctl.state.paths import Paths
from sglangctl.util.values import mapping

VERSION = 3
"""Of the checks: another number, and everything is read again."""
LARGEST = 8 * 1024 * 1024


def identity(status: os.stat_result) -> list[int]:
    """What changes when a file's content does: size, mtime in ns, inode."""
    return [status.st_size, status.st_mtime_ns, status.st_ino]


def identities(folder: Path) -> dict[str, list[int]]:
    """Name -> identity of each file that `folder` shows (through links); OSError.

    Modes and owners count too, also those of the folders above: they decide who can read it.
    """
    found: dict[str, list[int]] = {}
    real = Path(os.path.realpath(folder))
    for above in (real, *real.parents):
        status = os.stat(above)
        found[f"{above}/"] = [status.st_mode, status.st_uid, status.st_gid]
    for name in sorted(os.listdir(folder)):
        try:
            status = os.stat(folder / name)
        except OSError:
            found[name] = [-1, 0, 0]
            continue
        if not stat.S_ISDIR(status.st_mode):
            found[name] = [*identity(status), status.st_mode, status.st_uid, status.st_gid]
    return found


def file_of(folder: Path, user: str, paths: Paths) -> Path:
    """Where the memory of this folder, as `user` sees it, is kept. By its name alone: to follow its
    links could wait for a dead server."""
    key = hashlib.sha256(f"{os.path.abspath(folder)}\0{user}".encode(errors="surrogateescape"))
    return paths.root / "var/cache/sglangctl/weights" / f"{key.hexdigest()[:16]}.json"


def load(file: Path) -> dict[str, Any]:
    """The memory; empty where there is none that can be used."""
    try:
        with open(file, "rb") as stream:
            document = json.loads(stream.read(LARGEST))
    except (OSError, ValueError, RecursionError):
        return {}
    return document if mapping(document).get("version") == VERSION else {}


def save(file: Path, memory: dict[str, Any], gid: int | None = None) -> None:
    """Keep it; OSError (a full or read-only disk: the next check then reads the files again).

    `gid`: of who else reads it (an engine's own look before each start); root alone writes it.
    """
    file.parent.mkdir(mode=0o755, parents=True, exist_ok=True)
    data = json.dumps({**memory, "version": VERSION}).encode()
    write_atomic(file, data, 0o600 if gid is None else 0o640, gid=-1 if gid is None else gid)
