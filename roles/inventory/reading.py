"""Files on the controller that an inventory names: read whole, small ones only, never waited for."""

from __future__ import annotations

import os
import stat
from pathlib import Path


class UnreadableFile(Exception):
    """A file that is not read; the text says why, as the end of a sentence about it."""


def expanded(path: str) -> Path:
    """`path` with ~ and ~USER replaced; UnreadableFile where there is no such user."""
    try:
        return Path(path).expanduser()
    except RuntimeError:
        raise UnreadableFile("begins with the home folder of a user that does not exist") from None


def read_regular(path: Path, most: int) -> bytes:
    """The content of a regular file of at most `most` bytes.

    FileNotFoundError when it does not exist; UnreadableFile for anything else: a pipe or a device
    could keep us waiting for ever, or never end.
    """
    try:
        # Looked at before it is opened: opening alone does something to some devices.
        _check_regular(os.stat(path))
        # The path may have become a pipe meanwhile: opening one without O_NONBLOCK waits.
        with open(os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC), "rb") as file:
            _check_regular(os.fstat(file.fileno()))
            content = file.read(most + 1)
    except FileNotFoundError:
        raise
    except OSError as error:
        raise UnreadableFile(f"cannot be read: {error.strerror}") from None
    if len(content) > most:
        raise UnreadableFile(f"is larger than {most // 1024} KiB")
    return content


def _check_regular(status: os.stat_result) -> None:
    if stat.S_ISDIR(status.st_mode):
        raise UnreadableFile("cannot be read: Is a directory")
    if not stat.S_ISREG(status.st_mode):
        raise UnreadableFile("is a pipe, a socket or a device, not a regular file")
