"""The engine's own log, newest lines last (-f follows it across rotations and restarts).
Secrets are masked and control characters made harmless; of a progress bar that redraws its line,
the last state is shown. Exit status: 0, 2 when the log cannot be read.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import re
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

from sglangctl.masking import Masker, secrets_of
from sglangctl.paths import Paths
from sglangctl.terminal import harmless, without_ansi

BLOCK = 1 << 16
LOOK_S = 0.2
MARK = 64
"""Bytes before our offset by which a truncated and refilled file is told."""
LONGEST = 1 << 20
"""A longer "line" is not one: it is shown in pieces, so that memory stays bounded."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("name", metavar="NAME", help="the engine")
    parser.add_argument("-f", "--follow", action="store_true", help="go on with what is written")
    parser.add_argument(
        "-n", "--lines", type=int, default=200, metavar="N", help="the last N lines (default: 200)"
    )


def run(args: argparse.Namespace) -> int:
    paths = Paths()
    try:
        file = paths.engine_log(args.name)
        masker = Masker(all_secrets(args.name, paths))
        if args.lines > 0 or not args.follow:
            for line in last_lines(file, max(0, args.lines), missing_ok=args.follow):
                print(shown(line, masker))
        if args.follow:
            follow(Tail(file), masker)
    except PermissionError as error:
        return refuse(f"{error.filename} cannot be read by this user: run it with sudo")
    except FileNotFoundError:
        return refuse(
            f"{paths.engine_log(args.name)} is not there: {args.name} was never started, "
            "see: sglangctl status"
        )
    except (ValueError, OSError) as error:
        return refuse(str(error))
    return 0


def refuse(sentence: str) -> int:
    print(f"sglangctl logs: {harmless(sentence)}", file=sys.stderr)
    return 2


def all_secrets(name: str, paths: Paths) -> list[str]:
    """Of every release that is kept: the log reaches back before the last switch."""
    folders = [paths.current(name)]
    if paths.releases(name).exists():
        folders += sorted(path for path in paths.releases(name).iterdir() if path.is_dir())
    return [secret for folder in folders for secret in secrets_of(folder)]


def shown(line: bytes, masker: Masker) -> str:
    """One line as it may be printed."""
    text = without_ansi(line.decode("utf-8", "backslashreplace"))
    return harmless(masker.mask(text))


def redrawn(line: bytes) -> bytes:
    """What is left on the screen of a line with carriage returns: its last piece with text."""
    pieces = [piece for piece in line.split(b"\r") if piece.strip()]
    return pieces[-1] if pieces else b""


def last_lines(file: Path, count: int, missing_ok: bool = False) -> list[bytes]:
    """The last `count` lines, from the rotated file before where this one has fewer.

    An unfinished last line (a progress bar at work) counts.
    """
    try:
        lines = tail_of(file, count)
    except FileNotFoundError:
        if missing_ok:
            return []
        raise
    if len(lines) < count:
        with contextlib.suppress(FileNotFoundError):
            lines = tail_of(rotated(file), count - len(lines)) + lines
    return lines


def tail_of(file: Path, count: int) -> list[bytes]:
    with open(file, "rb") as source:
        position = source.seek(0, os.SEEK_END)
        data = b""
        while position > 0 and data.count(b"\n") <= count:
            size = min(BLOCK, position)
            position -= size
            source.seek(position)
            data = source.read(size) + data
    lines = data.split(b"\n")
    if not lines[-1]:
        lines.pop()
    return [redrawn(line) for line in lines[-count:]] if count else []


def rotated(file: Path) -> Path:
    """Where logrotate (copytruncate, delaycompress) puts the log before this one."""
    return file.with_name(file.name + ".1")


def follow(tail: Tail, masker: Masker) -> None:
    """Print what is appended until the reader goes away or Ctrl-C."""
    while True:
        for line in tail.read():
            print(shown(line, masker))
        sys.stdout.flush()
        time.sleep(LOOK_S)


class Tail:
    """Lines appended to a file that may be truncated (its old content copied beside it) or
    replaced while we read. Begins at its end."""

    def __init__(self, file: Path) -> None:
        self.file = file
        self._rest = b""
        self._inode, self._offset = 0, 0
        self._mark = b""
        with contextlib.suppress(FileNotFoundError), open(file, "rb") as source:
            self._inode = os.fstat(source.fileno()).st_ino
            self._offset = source.seek(0, os.SEEK_END)
            self._remember(source)

    def read(self) -> Iterator[bytes]:
        """The complete lines (or redrawn pieces) since the last call."""
        try:
            source: BinaryIO = open(self.file, "rb")  # noqa: SIM115
        except FileNotFoundError:
            return
        with source:
            if not self._goes_on(source):
                # What was written between our last look and the rotation is in the copy.
                with contextlib.suppress(FileNotFoundError), open(rotated(self.file), "rb") as old:
                    yield from self._lines(old, self._offset)
                self._inode, self._offset = os.fstat(source.fileno()).st_ino, 0
            yield from self._lines(source, self._offset)
            self._offset = source.tell()
            self._remember(source)

    def _goes_on(self, source: BinaryIO) -> bool:
        """Whether this is the file that we read, and only longer. A truncated file that has
        grown past our offset again is told by the bytes before it."""
        if os.fstat(source.fileno()).st_ino != self._inode:
            return False
        source.seek(self._offset - len(self._mark))
        return source.read(len(self._mark)) == self._mark

    def _remember(self, source: BinaryIO) -> None:
        size = min(MARK, self._offset)
        source.seek(self._offset - size)
        self._mark = source.read(size)

    def _lines(self, source: BinaryIO, offset: int) -> Iterator[bytes]:
        source.seek(offset)
        while True:
            data = source.read(BLOCK)
            if not data:
                return
            *pieces, self._rest = re.split(rb"[\r\n]", self._rest + data)
            if len(self._rest) > LONGEST:
                pieces.append(self._rest)
                self._rest = b""
            yield from (piece for piece in pieces if piece)
