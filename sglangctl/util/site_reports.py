"""Python's own report of a .pth file that it cannot use. It goes on without that file: no cause of anything."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from sglangctl.util import lazy_re

BEGIN = lazy_re.compile(r"^Error processing line \d+ of \S+\.pth:")
END = "Remainder of file ignored"
LINES = 16
"""Of one report, at most."""


def without(lines: Iterable[str]) -> Iterator[str]:
    """The lines that belong to no such report."""
    left = 0
    for line in lines:
        if BEGIN.match(line):
            left = LINES
        elif left and (line[:2] == "  " or not line.strip()):
            left -= 1
        elif left and line.strip() == END:
            left = 0
        else:
            left = 0
            yield line
