"""Follows the engine's log file: rotated by renaming or by truncating, absent, huge lines.

Bytes come as text in pieces that end where a line does ("\\n" or "\\r": progress bars), secrets
already masked: no piece ends within one.

All starts of an engine append to one file, and a start that was killed leaves its last line
unfinished. So the unit ends that line and writes a mark with the invocation id before each start:
a start's text begins behind its own mark, and ends before the mark of another.
"""

from __future__ import annotations

import codecs
import errno
import os
import re
import time
from collections.abc import Callable, Container
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from sglangctl.util import lazy_re
from sglangctl.util.plain_files import descriptor

CHUNK = 1 << 16
POLL_LIMIT = 4 * CHUNK
"""Bytes read in one poll: a log that runs away must not hold up everything else."""
BACKLOG = 64 * POLL_LIMIT
"""Bytes that may wait to be read: no more than what `drain` reads."""
LINE_LIMIT = 1 << 16
"""Characters of an unfinished line after which it is given out in parts."""
PARTIAL_S = 1.0
"""An unfinished line is given out after this long: a traceback's last words have no newline."""
KEPT_BACK = 1024
"""Characters of a huge line that stay behind, so that no secret (shorter than this) is cut."""
LOOK_BACK = 8 << 20
"""Bytes of an old log searched for the beginning of a run that nobody watched."""
WAIT_PREFIX = "sglangctl wait: "
"""How lines begin that `sglangctl wait` adds to the engine's log (it shares the unit's output)."""
MARK_PREFIX = "sglangctl: start "
"""How the line begins that the unit writes before each start (ExecStartPre)."""
MARK = lazy_re.compile(rf"^{MARK_PREFIX}([0-9a-f]{{32}})\n", re.M)
STAMP = lazy_re.compile(rb"\[(\d{4}-\d\d-\d\d \d\d:\d\d:\d\d)")
"""Anywhere in a line: it may stand behind a progress bar that a killed start left unfinished."""


@dataclass(frozen=True)
class Piece:
    """Text and the offset in the file behind it."""

    text: str
    offset: int


class Logtail:
    """`poll` returns what is new."""

    def __init__(
        self,
        path: Path,
        offset: int | None = None,
        mask: Callable[[str], str] = str,
        through_link: bool = False,
    ) -> None:
        """`offset` None: from the end of what is there now. `mask` takes secrets out of a text.
        `through_link`: `path` is one (a file of /proc/PID/fd); all others are not followed."""
        self.path = path
        self.mask = mask
        self._through_link = through_link
        self._fd: int | None = None
        self._identity: tuple[int, int] | None = None
        self._offset = 0
        self._wanted = offset
        self._first = True
        self._decoder = codecs.getincrementaldecoder("utf-8")("backslashreplace")
        self._rest = ""
        self._rest_since = 0.0
        self._run = ""
        self._over: Callable[[], bool] = lambda: True
        self._later: Callable[[], Container[str]] | None = None
        self._fenced = False

    def fence(
        self,
        run_id: str,
        over: Callable[[], bool],
        later: Callable[[], Container[str]] | None = None,
    ) -> None:
        """From now on the text of this run, and no further: the mark of another one ends it.

        `over`: whether the run's main process is gone. While it is there, a mark of another run
        is something that the engine itself wrote. So is later one of a run that there never was:
        `later` are the ids of the runs that began since (None: any id is one).
        """
        self._run, self._over, self._later = run_id, over, later

    def poll(self) -> list[Piece]:
        """New text, in pieces; empty when there is none. Reads at most POLL_LIMIT bytes."""
        pieces: list[Piece] = []
        if self._fenced:
            return pieces
        if self._fd is None and not self._open():
            return self._flush_old(pieces)
        self._read(pieces)
        if self._rotated():
            # The old file's last words first; what is written to it later is lost.
            self._read(pieces)
            self._give(pieces, everything=True)
            self._close()
            if self._open():
                self._read(pieces)
        return self._flush_old(pieces)

    def drain(self) -> list[Piece]:
        """All that is there now, unfinished lines too: the writer is gone."""
        pieces: list[Piece] = []
        for _ in range(64):
            more = self.poll()
            pieces += more
            if not more:
                break
        self._give(pieces, everything=True)
        return pieces

    def seek(self, offset: int) -> None:
        """Go on from `offset` of the present file."""
        self._wanted, self._first = offset, True
        self._close()
        self.go_on()

    def go_on(self) -> None:
        """Go on where it is, behind a fence too, without what is left of an unfinished line."""
        self._rest, self._fenced = "", False
        self._decoder.reset()

    def close(self) -> None:
        self._close()

    def _open(self) -> bool:
        try:
            self._fd = descriptor(self.path, follow=self._through_link)
        except FileNotFoundError:
            # What appears later is new from its first byte.
            self._wanted = 0 if self._first else self._wanted
            return False
        except OSError:
            return False
        found = os.fstat(self._fd)
        self._identity = (found.st_dev, found.st_ino)
        if self._first:
            wanted = found.st_size if self._wanted is None else self._wanted
            # Beyond the end: it was truncated meanwhile, and what is there now is new.
            self._offset = wanted if wanted <= found.st_size else 0
            self._first = False
        else:
            self._offset = 0
        self._decoder.reset()
        return True

    def _close(self) -> None:
        if self._fd is not None:
            os.close(self._fd)
            self._fd = None

    def _rotated(self) -> bool:
        try:
            found = os.stat(self.path)
        except OSError:
            # Renamed, and the new one does not exist yet: the old one may still be written.
            return False
        return (found.st_dev, found.st_ino) != self._identity

    def _read(self, pieces: list[Piece]) -> None:
        if self._fd is None:
            return
        if os.fstat(self._fd).st_size < self._offset:
            # Truncated in place (copytruncate): the writer appends from the new beginning.
            self._give(pieces, everything=True)
            self._offset = 0
            self._decoder.reset()
        if not self._fenced:
            self._skip(pieces)
        for _ in range(POLL_LIMIT // CHUNK):
            data = os.pread(self._fd, CHUNK, self._offset)
            if not data or self._fenced:
                return
            self._offset += len(data)
            self._rest_since = time.monotonic()
            self._rest += self._decoder.decode(data)
            self._give(pieces)

    def _skip(self, pieces: list[Piece]) -> None:
        """Leave out a hole (the engine can make its log one of any size), and of more than BACKLOG
        bytes that nobody can read in time all but the end."""
        if self._fd is None:
            return
        size = os.fstat(self._fd).st_size
        if size - self._offset <= POLL_LIMIT:
            return
        goal, hole = _data(self._fd, self._offset, size)
        if goal == self._offset and hole - goal <= POLL_LIMIT:
            return  # what stands before the hole first
        if size - goal > BACKLOG:
            goal, _ = _data(self._fd, size - BACKLOG // 2, size)
        if goal <= self._offset:
            return
        self._give(pieces, everything=True)
        if self._fenced:
            return
        note = f"sglangctl: {goal - self._offset} bytes of the log are skipped\n"
        self._offset = goal
        self._decoder.reset()
        pieces.append(Piece(note, goal))

    def _give(self, pieces: list[Piece], everything: bool = False) -> None:
        """Move what may be given out from the rest to `pieces`."""
        if everything:
            cut = len(self._rest)
        else:
            cut = max(self._rest.rfind("\n"), self._rest.rfind("\r")) + 1
            if cut == 0 and len(self._rest) > LINE_LIMIT:
                cut = safe_cut(self._rest, len(self._rest) - KEPT_BACK, self.mask)
        if cut <= 0:
            return
        found = self._other(cut)
        if found is not None:
            behind = self._rest[found.end() :]
            self._offset = max(0, self._offset - len(behind.encode("utf-8", "surrogatepass")))
            self._rest, cut, self._fenced = self._rest[: found.start()], found.start(), True
        text, self._rest = self.mask(self._rest[:cut]), self._rest[cut:]
        # Bytes that are not UTF-8 were written out longer: then the offset is a little early.
        offset = max(0, self._offset - len(self._rest.encode("utf-8", "surrogatepass")))
        for at in range(0, len(text), LINE_LIMIT):
            pieces.append(Piece(text[at : at + LINE_LIMIT], offset))

    def _other(self, cut: int) -> re.Match[str] | None:
        """The mark of another run before `cut`."""
        if MARK_PREFIX not in self._rest:
            return None
        marks = [mark for mark in MARK.finditer(self._rest, 0, cut) if mark[1] != self._run]
        if not marks or not self._over():
            return None
        later = self._later() if self._later is not None else [mark[1] for mark in marks]
        return next((mark for mark in marks if mark[1] in later), None)

    def _flush_old(self, pieces: list[Piece]) -> list[Piece]:
        if self._rest and time.monotonic() - self._rest_since >= PARTIAL_S:
            self._give(pieces, everything=True)
        return pieces


def _data(file: int, offset: int, size: int) -> tuple[int, int]:
    """Where the next bytes from `offset` on are that are no hole, and where those end."""
    try:
        begin = os.lseek(file, offset, os.SEEK_DATA)
        return begin, os.lseek(file, begin, os.SEEK_HOLE)
    except OSError as error:
        # ENXIO: nothing but a hole up to the end. Else the file system knows of no holes.
        return (size, size) if error.errno == errno.ENXIO else (offset, size)


def mark_end(path: Path, run_id: str) -> int | None:
    """The byte behind a run's mark, None where there is none (a unit of an older version, or the
    log was truncated since). OSError when the file cannot be read."""
    data, start = _last_bytes(path)
    mark = f"{MARK_PREFIX}{run_id}\n".encode()
    place = data.find(mark) if MARK.fullmatch(mark.decode()) else -1
    return None if place < 0 else start + place + len(mark)


def safe_cut(text: str, cut: int, mask: Callable[[str], str]) -> int:
    """The last place at or before `cut` where no secret is cut in two."""
    start = max(0, cut - KEPT_BACK)
    whole = mask(text[start:])
    for place in range(cut, start, -1):
        if mask(text[start:place]) + mask(text[place:]) == whole:
            return place
    return start


def beginning_of_run(path: Path, run_id: str, launched: float) -> int:
    """Where in an existing log a run begins that was launched at `launched` (seconds since 1970).

    Behind its mark. Without one: SGLang stamps its lines with local time, in whole seconds; lines
    before its first stamp are lost. Without a stamp of that time: the end of the file. OSError
    when it cannot be read.
    """
    marked = mark_end(path, run_id)
    if marked is not None:
        return marked
    data, start = _last_bytes(path)
    for match in STAMP.finditer(data):
        try:
            stamp = datetime.strptime(match.group(1).decode(), "%Y-%m-%d %H:%M:%S").timestamp()
        except (ValueError, OverflowError):
            continue
        if stamp >= int(launched):
            return start + match.start()
    return start + len(data)


def _last_bytes(path: Path) -> tuple[bytes, int]:
    """At most LOOK_BACK bytes before the end, and where they begin."""
    # The folder may be the engine's: neither its links nor its pipes are followed by root.
    with open(descriptor(path, follow=False), "rb") as file:
        start = max(0, file.seek(0, os.SEEK_END) - LOOK_BACK)
        file.seek(start)
        return file.read(LOOK_BACK), start
