"""Run another program and return its output: an argument list, never a shell, always with a time limit."""

from __future__ import annotations

import os
import selectors
import subprocess
import time
from collections.abc import Sequence
from dataclasses import dataclass

PLAIN = {
    "LC_ALL": "C.UTF-8",
    "SYSTEMD_COLORS": "0",
    "SYSTEMD_LOG_COLOR": "0",  # what systemd 247 looks at for its own complaints
    "SYSTEMD_PAGER": "",
}
"""Environment in which programs speak plain English without escape codes."""
MOST_BYTES = 64 << 20
"""Of each stream. A program that prints without end would take the host's memory within its time."""
KILLED_S = 1.0
"""For a killed program to end. One that waits in the kernel (nvidia-smi beside a wedged driver) does not."""


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
        process = subprocess.Popen(
            list(argv),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env={**os.environ, **PLAIN},
        )
    except OSError as error:
        return Result(None, "", str(error))
    end = time.monotonic() + timeout_s
    try:
        stdout, stderr = _read(process, end)
        status = process.wait(max(0.0, end - time.monotonic()))
    except subprocess.TimeoutExpired:
        return _killed(process, f"{argv[0]} did not answer within {timeout_s:g} s")
    except _TooMuch:
        return _killed(process, f"{argv[0]} printed more than {MOST_BYTES >> 20} MiB")
    except BaseException:
        _killed(process, "")
        raise
    return Result(
        status,
        stdout.decode("utf-8", "backslashreplace"),
        stderr.decode("utf-8", "backslashreplace"),
    )


class _TooMuch(Exception):
    pass


def _read(process: subprocess.Popen[bytes], end: float) -> tuple[bytes, bytes]:
    """All of both streams. TimeoutExpired, _TooMuch."""
    assert process.stdout is not None and process.stderr is not None
    found = {process.stdout.fileno(): bytearray(), process.stderr.fileno(): bytearray()}
    with process.stdout, process.stderr, selectors.DefaultSelector() as selector:
        for number in found:
            selector.register(number, selectors.EVENT_READ)
        while selector.get_map():
            left = end - time.monotonic()
            if left <= 0:
                raise subprocess.TimeoutExpired(process.args, left)
            for key, _ in selector.select(left):
                part = os.read(key.fd, 1 << 16)
                found[key.fd] += part
                if not part:
                    selector.unregister(key.fd)
                if len(found[key.fd]) > MOST_BYTES:
                    raise _TooMuch
    stdout, stderr = found.values()
    return bytes(stdout), bytes(stderr)


def _killed(process: subprocess.Popen[bytes], why: str) -> Result:
    process.kill()
    try:
        process.wait(KILLED_S)
    except subprocess.TimeoutExpired:
        why += "; it was killed, and waits in the kernel"
    return Result(None, "", why)
