"""The rest of a failed start is ended in seconds, whatever it does with SIGTERM."""

from __future__ import annotations

import subprocess
import sys
import time

from sglangctl.engine import run as runs
from sglangctl.engine.ending import end

PARENT = """
import signal, subprocess, sys
{first}
child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
print(child.pid, flush=True)
signal.pause()
"""


def started(first: str) -> tuple[subprocess.Popen[str], int]:
    """A main process with a child, in a group of their own."""
    main = subprocess.Popen(
        [sys.executable, "-c", PARENT.format(first=first)],
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    assert main.stdout is not None
    return main, int(main.stdout.readline())


def test_one_that_obeys_leaves_nobody_behind() -> None:
    main, _ = started("")
    run = runs.of_pid(main.pid)
    assert run is not None
    begun = time.monotonic()
    end(run, limit_s=30)
    assert time.monotonic() - begun < 20 and main.wait(5) == -15


def test_one_that_does_not_is_killed_with_its_children() -> None:
    main, child = started("signal.signal(signal.SIGTERM, signal.SIG_IGN)")
    run = runs.of_pid(main.pid)
    assert run is not None
    end(run, limit_s=0.2)
    assert main.wait(5) == -9
    assert state(child) in ("gone", "Z")


def state(pid: int) -> str:
    try:
        with open(f"/proc/{pid}/stat", encoding="ascii") as file:
            return file.read().rpartition(")")[2].split()[0]
    except FileNotFoundError:
        return "gone"
