"""Opens the folder of a start for writing: `starts/<UTC time>-<run>/journal.jsonl`, `latest`.

Readable by the service group (`wait` runs as the engine's user), by nobody else.
"""

from __future__ import annotations

import os
import pwd
import shutil
import time
from collections.abc import Iterator
from datetime import datetime, timezone
from pathlib import Path

from sglangctl.engine.run import Run
from sglangctl.state import starts
from sglangctl.state.config import EngineConfig
from sglangctl.state.files import link_atomic
from sglangctl.state.journal import Writer
from sglangctl.state.paths import Paths

KEPT_STARTS = 20
KEPT_BYTES = 64 << 20
LATEST = "latest"


def gid_of(user: str) -> int:
    """The primary group of the service user; -1 (leave it) where there is no such user."""
    try:
        return pwd.getpwnam(user).pw_gid
    except KeyError:
        return -1


def prepare(config: EngineConfig, paths: Paths) -> Path:
    """The engine's `starts`, made if it does not exist; OSError when it cannot be."""
    folder = paths.starts(config.name)
    folder.parent.mkdir(parents=True, exist_ok=True)
    _folder(folder, gid_of(config.user))
    return folder


def open_start(
    config: EngineConfig, paths: Paths, run: Run, newest: bool = True
) -> tuple[Path, Writer, bool]:
    """(journal, writer, whether it was there already) of a run; linked as `latest` where it is the
    engine's newest, and not one that another still serves beside."""
    gid = gid_of(config.user)
    folder = prepare(config, paths)
    name = starts.of_invocation(config.name, run.id, paths)
    resumed = name is not None
    if name is None:
        name = f"{stamp(run.launched)}-{run.id}"
        _folder(folder / name, gid)
    file = folder / name / starts.JOURNAL
    writer = Writer(file)
    if not resumed:
        os.chown(file, -1, gid)
        os.chmod(file, 0o640)
    if newest:
        link_atomic(folder / LATEST, name)
    for old in too_many(folder, keep=name):
        shutil.rmtree(old, ignore_errors=True)
    return file, writer, resumed


def stamp(launched: float) -> str:
    """The UTC time of a launch (time.monotonic()) as the beginning of a folder's name."""
    wall = time.time() - (time.monotonic() - launched)
    moment = datetime.fromtimestamp(wall, timezone.utc)
    return moment.strftime("%Y%m%dT%H%M%S.") + f"{moment.microsecond // 1000:03d}Z"


def too_many(folder: Path, keep: str) -> Iterator[Path]:
    """The oldest starts beyond KEPT_STARTS or KEPT_BYTES, never `keep`."""
    names = [name for name in starts.names(folder) if name != keep]
    room = KEPT_BYTES - _size(folder / keep)
    for place, name in enumerate(reversed(names), start=2):
        room -= _size(folder / name)
        if place > KEPT_STARTS or room < 0:
            yield folder / name


def _size(folder: Path) -> int:
    total = 0
    try:
        with os.scandir(folder) as entries:
            for entry in entries:
                total += entry.stat(follow_symlinks=False).st_size
    except OSError:
        return total
    return total


def _folder(path: Path, gid: int) -> None:
    """Make a folder that the group may read; one that is there already is left as it is.

    No chmod: the deploy's `starts` hands its group and its setgid bit on by itself, and the
    watch's sandbox forbids setting that bit.
    """
    try:
        path.mkdir(mode=0o750)
    except FileExistsError:
        return
    if path.stat().st_gid != gid:
        os.chown(path, -1, gid)
