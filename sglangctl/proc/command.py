"""Run another program and return its output: an argument list, never a shell, always with a time limit."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass

PLAIN = {
    "LC_ALL": "C.UTF-8",
    "SYSTEMD_COLORS": "0",
    "SYSTEMD_LOG_COLOR": "0",  # what systemd 247 looks at for its own complaints
    "SYSTEMD_PAGER": "",
}
"""Environment in which programs speak plain English without escape codes."""


@dataclass(frozen=True)
class Result:
    """One command's end: exit status (None: it could not be run or ran out of time), output."""

    status: int | None
    stdout: str
    stderr: str

    @property
    def ok(self) -> bool:
        return self.status == 0


def run(argv: Sequence[str], timeout_s: float = 30.0) -> Result:
    """Run a command without a shell, in the C locale; never raises for what the command does."""
    try:
        done = subprocess.run(
            list(argv),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=timeout_s,
            env={**os.environ, **PLAIN},
        )
    except subprocess.TimeoutExpired:
        return Result(None, "", f"{argv[0]} did not answer within {timeout_s:g} s")
    except OSError as error:
        return Result(None, "", str(error))
    return Result(
        done.returncode,
        done.stdout.decode("utf-8", "backslashreplace"),
        done.stderr.decode("utf-8", "backslashreplace"),
    )
