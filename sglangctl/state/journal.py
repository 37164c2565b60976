"""The journal: one JSON object a line, with `t` (seconds since launch) and `kind`.

`t` is the moment at which a thing became known. A reader takes an absent field for unknown,
skips a line that is not one of these objects (a crash cuts the last one short), and never raises
because of what a line says.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from sglangctl.util.values import json_object

VERSION = 1
Event = dict[str, Any]
MAX_T = 1e12


def parse(line: str | bytes) -> Event | None:
    """The event of one line; None for a line that is not an event."""
    event = json_object(line)
    if not isinstance(event.get("kind"), str):
        return None
    seconds = event.get("t")
    if isinstance(seconds, bool) or not isinstance(seconds, (int, float)):
        return None
    if not -MAX_T < seconds < MAX_T:  # also NaN, infinity and integers that are no float
        return None
    return event


def read(path: Path) -> Iterator[Event]:
    """The events of a file, in its order; OSError when it cannot be opened."""
    with open(path, "rb") as file:
        yield from events(file)


def events(lines: Iterable[str | bytes]) -> Iterator[Event]:
    """The events among `lines`."""
    for line in lines:
        event = parse(line)
        if event is not None:
            yield event


class Writer:
    """Appends events to one journal; each line is written with one write(2)."""

    def __init__(self, path: Path, mode: int = 0o640) -> None:
        self.path = path
        self._file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, mode)
        self.bytes = os.fstat(self._file).st_size
        self._cut = False
        """The last line is not whole: the disk was full."""

    def write(self, t: float, kind: str, **fields: Any) -> Event:
        """Append one event (`t`: seconds since launch) and return it; OSError on a full disk."""
        event: Event = {"t": round(t, 3), "kind": kind, **fields}
        line = json.dumps(event, ensure_ascii=True, separators=(",", ":")).encode() + b"\n"
        if self._cut:
            line = b"\n" + line
        self._cut = True
        while line:
            line = line[os.write(self._file, line) :]
        self._cut = False
        self.bytes = os.fstat(self._file).st_size
        return event

    def close(self) -> None:
        os.close(self._file)
