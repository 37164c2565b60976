"""A wheel as an archive of others: opened within limits, its members' names looked at.

A list of members that is as large as the file would be read into memory at once, and a member of a
few KiB can unpack to more than any disk has.
"""

from __future__ import annotations

import io
import stat
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path, PurePosixPath

from sglangctl.util.errors import Unusable

LISTED = 16 << 20
"""Bytes of the list of members; a kernel's has some 100 KiB."""
BROKEN = (zipfile.BadZipFile, EOFError, RuntimeError, ValueError, zlib.error)
"""What reading an archive of others may raise."""
UNPACKED = 32 << 30
"""Bytes of all members; FA3's library has 1.1 GiB."""
METHODS = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)
TEXT = 4 << 20
"""Bytes of a text in it; METADATA has some KiB."""
INTO_SITE = ("purelib", "platlib")
"""The folders of NAME.data whose content belongs into site-packages."""


@contextmanager
def opened(path: Path) -> Iterator[zipfile.ZipFile]:
    """The archive at `path`; BadZipFile beyond the limits, and where it is none."""
    with _Bounded(path) as file, zipfile.ZipFile(file) as found:
        file.limited = False
        if any(item.compress_type not in METHODS for item in found.infolist()):
            raise zipfile.BadZipFile("it is packed in a way that wheels are not")
        if sum(item.file_size for item in found.infolist()) > UNPACKED:
            raise zipfile.BadZipFile(f"it unpacks to more than {UNPACKED >> 30} GiB")
        yield found


class _Bounded(io.BufferedReader):
    """Refuses one large read, which is how zipfile reads the list of members."""

    def __init__(self, path: Path) -> None:
        super().__init__(io.FileIO(path))
        self.limited = True

    def read(self, size: int | None = -1, /) -> bytes:
        if self.limited and size is not None and size > LISTED:
            raise zipfile.BadZipFile(f"its list of files has more than {LISTED >> 20} MiB")
        return super().read(size)


def text(found: zipfile.ZipFile, name: str) -> str:
    """A member as text; "" where there is none, BadZipFile where it is too long."""
    try:
        item = found.getinfo(name)
    except KeyError:
        return ""
    if item.file_size > TEXT:
        raise zipfile.BadZipFile(f"its {name} has more than {TEXT >> 20} MiB")
    return found.read(item).decode("utf-8", "backslashreplace")


def examine(wheel: Path) -> None:
    """Unusable where the file is no archive, or one that `place` refuses."""
    try:
        with opened(wheel) as found:
            for item in found.infolist():
                if not item.is_dir():
                    place(item, wheel)
    except BROKEN as error:
        raise Unusable(f"{wheel.name} is no whole wheel: {error}") from None


def place(item: zipfile.ZipInfo, wheel: Path) -> PurePosixPath:
    """Where a member goes, relative to site-packages."""
    parts = item.filename.split("/")
    if not all(part not in ("", ".", "..") and "\0" not in part for part in parts):
        raise Unusable(f"{wheel.name} has a file {item.filename!r}: it is not installed")
    kind = stat.S_IFMT(item.external_attr >> 16)
    if kind not in (0, stat.S_IFREG):
        raise Unusable(f"{wheel.name}: {item.filename!r} is no plain file: it is not installed")
    if parts[0].endswith(".data"):
        if len(parts) < 3 or parts[1] not in INTO_SITE:
            raise Unusable(
                f"{wheel.name} has {item.filename!r}, which goes elsewhere than into site-packages: "
                "a kernel's wheel has no scripts and no headers"
            )
        parts = parts[2:]
    return PurePosixPath(*parts)
