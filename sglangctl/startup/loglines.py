"""The engine's log: raw pieces to lines, lines to what they say.

Pieces may end anywhere. Lines end with a newline or a carriage return (progress bars); a
message may follow a bar on the same line. A log begins where one is written: what stands there
before the first line end or message may be the unfinished last line of the start before, so that
it counts for nothing (bars begin with a carriage return of their own). Prefix of a message (SGLang's own format):
`[2026-11-29 15:37:30 DP0 PP0 TP1 EP1] text`; without parallelism there is no rank in it.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from sglangctl.util import lazy_re

LINE_LIMIT = 4000
TAIL_LIMIT = 65536
"""Characters of an unfinished line that are kept: server_args= alone has 15,000."""

_ANSI = lazy_re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)?|[@-Z\\-_])")
_BREAK = lazy_re.compile(r"[\r\n]+")
_PREFIX = lazy_re.compile(
    r"\[\d{4}-\d\d-\d\d \d\d:\d\d:\d\d(?:[.,]\d+)?((?: [A-Z_]{2,8}\d+)*)\] ?(.*)", re.DOTALL
)
_BAR = lazy_re.compile(r"(\d{1,3})%[^/\n]{0,80}?(\d{1,9})/(\d{1,9}) \[")


@dataclass
class Line:
    """One line of the log."""

    text: str
    """Without prefix, ANSI codes and line end."""
    rank: str | None
    """`TP1`, `DP0 PP0 TP1`; "" for a message without a rank; None: not a message of the logger."""


@dataclass(frozen=True)
class Bar:
    """One state of a progress bar (tqdm)."""

    label: str
    done: int
    total: int


class Splitter:
    """Joins pieces and yields whole lines."""

    def __init__(self) -> None:
        self.tail = ""
        self.tail_t = 0.0
        self.begun = False
        """The first line end was seen: from there on all is this start's."""

    def feed(self, t: float, data: str) -> list[Line]:
        """The lines that `data` completes."""
        parts = _BREAK.split(self.tail + data if self.tail else data)
        self.tail = parts.pop()[-TAIL_LIMIT:]
        self.tail_t = t
        lines: list[Line] = []
        if parts and not self.begun:
            self.begun = True
            parts[0] = _own(parts[0])
        for part in parts:
            if part:
                _append(lines, part)
        return lines

    def flush(self) -> list[Line]:
        """The unfinished line, taken as finished."""
        lines: list[Line] = []
        if self.tail:
            part = self.tail if self.begun else _own(self.tail)
            if part:
                _append(lines, part)
            self.tail, self.begun = "", True
        return lines


def _own(first: str) -> str:
    """A log's first line without what another start may have left before it."""
    message = _PREFIX.search(first)
    if message is not None:
        return first[message.start() :]
    return "" if bar(first) is not None else first


def _append(lines: list[Line], part: str) -> None:
    part = part[:TAIL_LIMIT]
    if "\x1b" in part:
        part = _ANSI.sub("", part)
    at = part.find("[20", 1)
    while at > 0:
        if "%" in part[:at] and _PREFIX.match(part, at):
            # A message that was written behind a progress bar which had not ended its line.
            lines.append(Line(part[:at], None))
            part = part[at:]
            break
        # The bar's own clock may stand at [20:15.
        at = part.find("[20", at + 1)
    if part.startswith("[20"):
        match = _PREFIX.match(part)
        if match:
            lines.append(Line(match[2], match[1].strip()))
            return
    lines.append(Line(part, None))


def bar(text: str) -> Bar | None:
    """The progress bar in `text`, if it is one."""
    if "%" not in text or "/" not in text or len(text) > 600:
        return None
    match = _BAR.search(text)
    if match is None:
        return None
    done, total = int(match[2]), int(match[3])
    if total <= 0 or done > total:
        return None
    return Bar(text[: match.start()].strip(" :"), done, total)
