"""Read files that others may have put there: a pipe would be waited for, a device never ends."""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path

LARGEST = 16 << 20
"""Bytes of a text: the largest RECORD seen has 2 MiB."""


def descriptor(path: Path, follow: bool = True) -> int:
    """A plain file (also through a link, where we `follow`), open for reading; OSError for anything
    else."""
    flags = os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOCTTY
    found = os.open(path, flags if follow else flags | os.O_NOFOLLOW)
    if stat.S_ISREG(os.fstat(found).st_mode):
        return found
    os.close(found)
    raise OSError(errno.EINVAL, "it is no plain file", str(path))


def read_bytes(path: Path, limit: int = LARGEST) -> bytes:
    """The content; OSError also for a file of more than `limit` bytes."""
    with open(descriptor(path), "rb") as file:
        data = file.read(limit + 1)
    if len(data) > limit:
        raise OSError(errno.EFBIG, f"it has more than {limit} bytes", str(path))
    return data


def text_of(path: Path) -> str:
    """As read_text; empty where it cannot be read."""
    try:
        return read_text(path)
    except OSError:
        return ""


def read_text(path: Path) -> str:
    """The content as text, bytes that are none written out; OSError as read_bytes has it."""
    return read_bytes(path).decode("utf-8", "backslashreplace")
