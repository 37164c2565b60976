"""Waiting for what a real process does: the one place where a test sleeps.

Where a clock can be given to the code, a test gives it one and does not wait.
"""

from __future__ import annotations

import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

T = TypeVar("T")


def until(condition: Callable[[], T], seconds: float = 20.0, every_s: float = 0.02) -> T:
    """The first answer of `condition` that is true; AssertionError with its last one after that."""
    end = time.monotonic() + seconds
    while not (found := condition()):
        assert time.monotonic() < end, f"still {found!r} after {seconds:g} s"
        time.sleep(every_s)
    return found


def catches(pid: int, number: signal.Signals) -> bool:
    """Whether that process has a handler for that signal by now: its program has begun."""
    status = Path(f"/proc/{pid}/status").read_text()
    caught = next(line for line in status.splitlines() if line.startswith("SigCgt:"))
    return bool(int(caught.split()[1], 16) & 1 << number - 1)
