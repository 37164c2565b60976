"""Pack what an engine has compiled into one archive, and unpack it.

Packed by root: each folder and file is opened from its parent's descriptor, no link is followed, and
only plain files of the engine's user are taken. Unpacked with the rights of the engine's user. Times
are kept to the nanosecond: ninja compares them.
"""

from __future__ import annotations

import os
import shutil
import stat
import tarfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from sglangctl.util import lazy_re
from sglangctl.util.errors import Unusable

PARTS = (
    *("triton", "inductor", "sglang"),
    *(".cache/flashinfer", ".cache/tvm-ffi", ".cache/deep_gemm"),
)
"""What is packed, below the folder of an environment: what else lies there is nobody's cache."""
MOST_FILES = 50_000
LARGEST = 2 << 30
"""Bytes of all files together."""
DEEPEST = 32
LEFT_OUT = lazy_re.compile(r"(?:.*\.)?lock|\.ninja_lock|\.lock.*|.*[^_]\.log|tmp\..*|.*\.tmp")
"""Names of lock files (torch, FlashInfer, ninja), logs (FlashInfer writes one when it is imported) and
files that are not whole (Triton, Inductor)."""
_ODD = lazy_re.compile(r"[\x00-\x1f\x7f-\x9f\ud800-\udfff\\]")
_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_FILE = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC


@dataclass(frozen=True)
class Found:
    """One plain file: its name below the folder, and what changes with it."""

    name: str
    size: int
    mtime_ns: int
    executable: bool


def files(folder: Path, uid: int) -> Iterator[tuple[Found, int]]:
    """The files below the parts of `folder`, each with the descriptor of the folder that it is in.

    Unusable beyond the limits. What is not there has none.
    """
    count = size = 0
    for part in PARTS:
        for found, parent in _part(folder, part, uid):
            count, size = count + 1, size + found.size
            if count > MOST_FILES or size > LARGEST:
                limits = f"{MOST_FILES} files or {LARGEST >> 30} GiB"
                raise Unusable(f"{folder} has more than {limits}: it is not shared")
            yield found, parent


def pack(folder: Path, uid: int, out: IO[bytes]) -> list[Found]:
    """Write the archive. Unusable where something is compiled meanwhile."""
    packed = []
    with tarfile.open(fileobj=out, mode="w", format=tarfile.PAX_FORMAT) as archive:
        for found, parent in files(folder, uid):
            descriptor = os.open(os.path.basename(found.name), _FILE, dir_fd=parent)
            with open(descriptor, "rb") as file:
                if _found(found.name, os.fstat(descriptor), uid) != found:
                    raise Unusable(f"{found.name} changes: the engine still compiles")
                archive.addfile(_member(found), file)
            packed.append(found)
    if [found for found, _ in files(folder, uid)] != packed:
        raise Unusable("files change: the engine still compiles")
    return packed


def members(archive: tarfile.TarFile) -> Iterator[tuple[tarfile.TarInfo, int]]:
    """The files of an archive, each with its time in nanoseconds; Unusable for one that is not ours."""
    seen: set[str] = set()
    size = 0
    for member in archive:
        size += member.size
        name = member.name
        if not member.isreg() or member.issparse() or not _may_be(name) or name in seen:
            raise Unusable(f"{name!r} does not belong into such an archive")
        seen.add(name)
        if len(seen) > MOST_FILES or size > LARGEST:
            raise Unusable("the archive is larger than one may be")
        seconds, _, rest = member.pax_headers.get("mtime", "").partition(".")
        if not (seconds.isdecimal() and len(rest) == 9 and rest.isdecimal()):
            raise Unusable(f"{name!r} has no time")
        yield member, int(seconds) * 10**9 + int(rest)


def unpack(archive: Path, folder: Path) -> None:
    """Unpack an archive to a folder that is not there yet, in one rename."""
    between = folder.with_name(f"{folder.name}.incoming")
    shutil.rmtree(between, ignore_errors=True)
    between.mkdir(parents=True, mode=0o750)
    try:
        with tarfile.open(archive, mode="r:") as source:
            for member, mtime_ns in members(source):
                path = between / member.name
                path.parent.mkdir(parents=True, exist_ok=True, mode=0o750)
                mode = 0o750 if member.mode & 0o100 else 0o640
                flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW
                content = source.extractfile(member)
                assert content is not None
                with open(os.open(path, flags, mode), "wb") as file:
                    shutil.copyfileobj(content, file)
                os.utime(path, ns=(mtime_ns, mtime_ns))
        between.rename(folder)
    finally:
        shutil.rmtree(between, ignore_errors=True)


def _part(folder: Path, part: str, uid: int) -> Iterator[tuple[Found, int]]:
    opened: list[int] = []
    try:
        at = os.open(folder, _DIRECTORY)
        opened.append(at)
        for name in part.split("/"):
            at = os.open(name, _DIRECTORY, dir_fd=at)
            opened.append(at)
        yield from _below(at, part, uid, os.fstat(at).st_dev, DEEPEST)
    except FileNotFoundError:
        return
    finally:
        for one in opened:
            os.close(one)


def _below(at: int, prefix: str, uid: int, device: int, deep: int) -> Iterator[tuple[Found, int]]:
    if deep == 0:
        raise Unusable(f"{prefix} is nested too deep: it is not shared")
    with os.scandir(at) as entries:
        shown = sorted((entry.name, entry.stat(follow_symlinks=False)) for entry in entries)
    for base, status in shown:
        name = f"{prefix}/{base}"
        if status.st_uid != uid or status.st_dev != device or _ODD.search(base):
            continue
        if stat.S_ISDIR(status.st_mode):
            inner = os.open(base, _DIRECTORY, dir_fd=at)
            try:
                yield from _below(inner, name, uid, device, deep - 1)
            finally:
                os.close(inner)
        elif (found := _found(name, status, uid)) is not None and not LEFT_OUT.fullmatch(base):
            yield found, at


def _found(name: str, status: os.stat_result, uid: int) -> Found | None:
    """None for what is not a plain file of that user, or has a second name."""
    if not stat.S_ISREG(status.st_mode) or status.st_uid != uid or status.st_nlink != 1:
        return None
    executable = bool(status.st_mode & stat.S_IXUSR)
    return Found(name, status.st_size, status.st_mtime_ns, executable)


def _member(found: Found) -> tarfile.TarInfo:
    member = tarfile.TarInfo(found.name)
    member.size = found.size
    member.mode = 0o750 if found.executable else 0o640
    seconds, rest = divmod(found.mtime_ns, 10**9)
    # tarfile itself would round it.
    member.pax_headers = {"mtime": f"{seconds}.{rest:09d}"}
    return member


def _may_be(name: str) -> bool:
    words = name.split("/")
    return (
        any(name.startswith(f"{part}/") for part in PARTS)
        and len(words) <= DEEPEST + 3
        and not any(word in ("", ".", "..") or len(word) > 255 for word in words)
        and not _ODD.search(name)
        and not LEFT_OUT.fullmatch(words[-1])
    )
