"""Reading fields of untrusted events: a value of the wrong type counts as absent."""

from __future__ import annotations

import json
import math
from datetime import datetime
from typing import Any

# Larger than any count or time that we compare; keeps sums and int() away from infinity.
_HUGE = 1e15


def number(value: Any) -> float | None:
    """A finite number that is not a boolean, else None."""
    if isinstance(value, float):
        return value if math.isfinite(value) and abs(value) < _HUGE else None
    if isinstance(value, int) and not isinstance(value, bool) and abs(value) < _HUGE:
        return float(value)
    return None


def whole(value: Any) -> int | None:
    """A whole number, else None."""
    found = number(value)
    return None if found is None else int(found)


def in_unix(when: Any) -> float | None:
    """Unix seconds of an ISO time with its zone; None of anything else."""
    try:
        found = datetime.fromisoformat(str(when))
    except ValueError:
        return None
    return found.timestamp() if found.tzinfo else None


def digits(value: str) -> int | None:
    """The number that up to 18 ASCII digits spell, else None.

    str.isdigit() is no check for int(): it accepts "²", and int() refuses thousands of digits.
    """
    return int(value) if value.isascii() and value.isdigit() and len(value) <= 18 else None


def text(value: Any) -> str | None:
    """A string, else None."""
    return value if isinstance(value, str) else None


def texts(value: Any) -> list[str]:
    """The texts that are not empty in a list; nothing of anything else."""
    return [one for one in map(text, value) if one] if isinstance(value, list) else []


def mapping(value: Any) -> dict[str, Any]:
    """A mapping, else an empty one."""
    return value if isinstance(value, dict) else {}


def json_object(text: str | bytes) -> dict[str, Any]:
    """The mapping that a text is in JSON; an empty one for any other text."""
    try:
        return mapping(json.loads(text))
    except (ValueError, RecursionError):
        return {}


def mappings(value: Any) -> list[dict[str, Any]]:
    """The mappings in a list; everything else is left out."""
    if not isinstance(value, list):
        return []
    return [item for item in value if isinstance(item, dict)]


def rounded(value: float | None, digits: int = 3) -> float | None:
    """A number for a document; None stays None."""
    return None if value is None else round(value, digits)


def printable(value: str, limit: int = 300) -> str:
    """One line of text without control characters, at most `limit` characters long."""
    line = "".join(c if c.isprintable() else "\ufffd" for c in value[: limit + 1])
    return line if len(line) <= limit else line[: limit - 1] + "…"
