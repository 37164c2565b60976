"""The engine's own log, newest lines last (-f follows it across rotations and restarts).
Secrets are masked and control characters escaped; of a progress bar that redraws its line,
the last state is shown. Exit status: 0, 2 when the log cannot be read.
"""

from __future__ import annotations

import argparse
import contextlib
import re
import sys
import time
from collections.abc import Iterator
from pathlib import Path

from sglangctl.engine import deleted_log
from sglangctl.masking.masker import Masker
from sglangctl.state import starts
from sglangctl.state.config import require_known
from sglangctl.state.paths import Paths
from sglangctl.state.release import all_secrets
from sglangctl.state.slots import live_unit
from sglangctl.systemd.unit import find
from sglangctl.util.errors import Unusable
from sglangctl.util.terminal import escaped, without_ansi
from sglangctl.watch.logtail import Logtail

BLOCK = 1 << 16
BACK = 16 << 20
"""Bytes that are looked through for the last lines: the engine may write as long a line as it likes,
or make its log a hole of any size."""
LINE_SHOWN = 1 << 16
"""Characters of a line that are shown, the last ones."""
LOOK_S = 0.2


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("name", metavar="NAME", help="the engine")
    parser.add_argument(
        "-f", "--follow", action="store_true", help="print new lines as they are written"
    )
    parser.add_argument(
        "-n", "--lines", type=int, default=200, metavar="N", help="the last N lines (default: 200)"
    )


def run(args: argparse.Namespace) -> int:
    paths = Paths()
    require_known(args.name, paths)
    file = paths.engine_log(args.name)
    masker = Masker(all_secrets(args.name, paths))
    unit = live_unit(args.name, paths)
    running = find(unit)
    deleted = deleted_log.still_written(running.main_pid, file) if running else None
    if deleted is not None:
        print(f"sglangctl logs: {deleted_log.sentence(file, unit)}", file=sys.stderr)
        file = deleted
    elif not file.exists() and not args.follow:
        never = starts.latest(args.name, paths) is None
        why = f"{args.name} was never started" if never else "it was deleted"
        raise Unusable(f"{file} does not exist: {why}, see: sglangctl status {args.name}")
    # What is written meanwhile is the follower's: nothing is shown twice or left out.
    end = file.stat().st_size if file.exists() else None
    if end is not None:
        for line in last_lines(file, max(0, args.lines), end):
            print(shown(line, masker))
    if args.follow:
        opened = deleted is not None
        follow(Logtail(file, offset=end, mask=masker.mask, through_link=opened), masker)
    return 0


def shown(line: bytes, masker: Masker) -> str:
    """One line as it may be printed."""
    text = masker.mask(without_ansi(line.decode("utf-8", "backslashreplace")))
    if len(text) > LINE_SHOWN:
        text = f"[sglangctl: {len(text) - LINE_SHOWN} characters left out] {text[-LINE_SHOWN:]}"
    return escaped(text)


def redrawn(line: bytes) -> bytes:
    """What is left on the screen of a line with carriage returns: its last piece with text."""
    pieces = [piece for piece in line.split(b"\r") if piece.strip()]
    return pieces[-1] if pieces else b""


def last_lines(file: Path, count: int, end: int) -> list[bytes]:
    """The last `count` lines before byte `end`, from the rotated file where this one has fewer.

    An unfinished last line (a progress bar at work) counts.
    """
    lines = tail_of(file, count, end)
    if len(lines) < count:
        with contextlib.suppress(FileNotFoundError):
            old = rotated(file)
            lines = tail_of(old, count - len(lines), old.stat().st_size) + lines
    return lines


def tail_of(file: Path, count: int, end: int) -> list[bytes]:
    """The last `count` lines of a file before byte `end`, as far as they lie in the last BACK bytes."""
    pieces: list[bytes] = []
    room, breaks = min(BACK, end), 0
    with open(file, "rb") as source:
        position = end
        while room > 0 and breaks <= count:
            size = min(BLOCK, room)
            position, room = position - size, room - size
            source.seek(position)
            pieces.append(source.read(size))
            breaks += pieces[-1].count(b"\n")
    lines = b"".join(reversed(pieces)).split(b"\n")
    if not lines[-1]:
        lines.pop()
    if position > 0 and len(lines) <= count:
        # The first one is a piece, maybe with a piece of a secret.
        left_out = f"[sglangctl: {position} bytes before this are left out, see {file}]"
        lines = [left_out.encode(), *lines[1:]] if count > 0 else []
    return [redrawn(line) for line in lines[-count:]] if count else []


def rotated(file: Path) -> Path:
    """Where logrotate (copytruncate, delaycompress) puts the log before this one."""
    return file.with_name(file.name + ".1")


def follow(tail: Logtail, masker: Masker) -> None:
    """Print what is appended until the reader goes away or Ctrl-C."""
    while True:
        for piece in tail.poll():
            for line in new_lines(piece.text, masker):
                print(line)
        sys.stdout.flush()
        time.sleep(LOOK_S)


def new_lines(text: str, masker: Masker) -> Iterator[str]:
    """What may be printed of a new piece; each redrawing of a progress bar is a line."""
    for line in re.split(r"[\r\n]", text):
        if line.strip():
            yield escaped(masker.mask(without_ansi(line)))
