"""Process titles as setproctitle makes them, and death with the parent."""

from __future__ import annotations

import ctypes
import os
import signal

PR_SET_PDEATHSIG = 1
PR_SET_NAME = 15
COMM = 15
_libc = ctypes.CDLL(None, use_errno=True)


def retitle(title: str) -> None:
    """Make `title` the whole command line of this process, and its first 15 bytes its comm.

    The kernel reads /proc/PID/cmdline from the memory in which argv was passed (fields 48 and
    49 of /proc/PID/stat), so the title is written there; prctl can move that window only with
    a capability.
    """
    data = os.fsencode(title)
    _libc.prctl(PR_SET_NAME, ctypes.c_char_p(data[:COMM]), 0, 0, 0)
    with open("/proc/self/stat", encoding="ascii", errors="replace") as file:
        fields = file.read().rpartition(")")[2].split()
    start, end = int(fields[45]), int(fields[46])
    room = end - start
    ctypes.memset(start, 0, room)
    ctypes.memmove(start, data[: room - 1], min(len(data), room - 1))


def die_with_parent() -> None:
    """SIGKILL for this process when the thread that made it ends."""
    _libc.prctl(PR_SET_PDEATHSIG, int(signal.SIGKILL), 0, 0, 0)
