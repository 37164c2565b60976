"""Untrusted text (logs, titles, paths, model names) escaped for a terminal."""

from __future__ import annotations

import os
import re
import shutil
from typing import TextIO

from sglangctl.util import lazy_re

ANSI = lazy_re.compile(
    r"\x1b\[[0-?]*[ -/]*[@-~]"  # CSI: colours, cursor
    r"|\x1b\][^\x07\x1b]*(?:\x07|\x1b\\)"  # OSC: window titles, links
    r"|\x1b[@-Z\\^_]"
)
CONTROL = lazy_re.compile(
    "[\x00-\x08\x0a-\x1f\x7f-\x9f"  # C0 (all but the tab), DEL, C1
    "\u061c\u200b-\u200f\u2028-\u202e\u2060-\u2069\ufeff"  # invisible, line breaks, bidi overrides
    "\ud800-\udfff]"  # lone surrogates: not encodable
)


WIDE = 160
"""Columns of what is no terminal."""


def escaped(text: str) -> str:
    """One line of text with every control character written out (`\\x1b`, `\\n`, `\\u202e`)."""
    return CONTROL.sub(_written_out, text)


def without_ansi(text: str) -> str:
    """Colours and cursor movements taken out, as a pipe would want it."""
    return ANSI.sub("", text)


def cut(text: str, width: int) -> str:
    """At most `width` characters, the last three of them dots where something is missing."""
    return text if len(text) <= width else text[: max(0, width - 3)] + "..."


def looks(stream: TextIO) -> tuple[bool, int]:
    """Whether it takes colours (see no-color.org), and how many columns it has."""
    if not stream.isatty():
        return False, WIDE
    colour = not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"
    return colour, shutil.get_terminal_size((WIDE, 24)).columns


def _written_out(match: re.Match[str]) -> str:
    code = ord(match.group())
    names = {0x0A: "\\n", 0x0D: "\\r"}
    return names.get(code) or (f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}")
