"""Log lines in the real engine's form: stderr, `[date rank] text`, access log on stdout."""

from __future__ import annotations

import os
import sys
import time

from sglang.version import __version__

LEVELS = {"debug": 10, "info": 20, "warning": 30, "error": 40, "critical": 50}
VERSION = tuple(int(part) for part in __version__.partition("+")[0].split(".")[:3])
"""Wordings changed at 0.5.12 and 0.5.20; README.md says what differs."""


class Log:
    """One process's log; `silent` leaves this process's own lines out (see replay.py)."""

    silent = False

    def __init__(self, level: str = "info", rank: str = "") -> None:
        self.level = LEVELS.get(level.lower(), 20)
        self.rank = rank

    def line(self, message: str, level: str = "info") -> None:
        """One line of the engine's own log."""
        if LEVELS[level] >= self.level and not Log.silent:
            raw(f"[{stamp()}{self.rank}] {message}\n")

    def uvicorn(self, message: str, kind: str = "INFO") -> None:
        self.line(f"{kind + ':':<10}{message}", "error" if kind == "ERROR" else "info")

    def access(self, message: str) -> None:
        """uvicorn's access log, on stdout."""
        if self.level <= LEVELS["info"]:
            os.write(1, f"[{stamp()}] INFO:     {message}\n".encode())


def stamp() -> str:
    return time.strftime("%Y-%m-%d %H:%M:%S")


def raw(data: str) -> None:
    """Bytes as they are, in one write: processes share the file."""
    sys.stderr.flush()
    os.write(2, data.encode("utf-8", "backslashreplace"))


def bar(label: str, done: int, total: int, seconds: float, blocks: bool = False) -> str:
    """One state of a tqdm bar, without the carriage return."""
    percent = 100 * done // max(1, total)
    rate = f"{done / seconds:.2f}it/s" if done and seconds > 0 else "?it/s"
    left = f"00:{int(seconds * (total - done) / done):02d}" if done else "?"
    times = f"[00:{int(seconds):02d}<{left}, {rate}]"
    if not blocks:
        return f"{label}: {percent:3d}% Completed | {done}/{total} {times}"
    filled = "█" * (10 * done // max(1, total))
    return f"{label}: {percent:3d}%|{filled:<10}| {done}/{total} {times}"


def traceback(error: str, *frames: tuple[str, int, str]) -> str:
    """A traceback with the given (file below site-packages, line, function) frames."""
    site = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
    text = "Traceback (most recent call last):\n"
    for path, line, function in frames:
        text += f'  File "{site}/{path}", line {line}, in {function}\n'
    return f"{text}{error}\n"
