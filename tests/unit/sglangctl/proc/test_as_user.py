"""A look that may hang in the kernel: it is left behind, and holds nothing of ours."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from sglangctl.proc import as_user

ROOT = Path(__file__).resolve().parents[4]
# As on a dead NFS mount: not even SIGKILL ends it.
HANGS = """
import fcntl, os, sys, time
sys.path.insert(0, sys.argv[1])
from sglangctl.proc import as_user
lock = os.open(sys.argv[2], os.O_RDWR | os.O_CREAT)
fcntl.flock(lock, fcntl.LOCK_EX)
as_user.os.kill = lambda *words: None
try:
    as_user.within(0.3, lambda: time.sleep(60))
except as_user.NoAnswer as error:
    print(error)
"""


def test_one_that_is_left_behind_holds_neither_our_output_nor_our_locks(tmp_path: Path) -> None:
    """An SSH session ends when nobody has its pipes open."""
    lock = tmp_path / "lock"
    done = subprocess.run(
        [sys.executable, "-c", HANGS, str(ROOT), str(lock)],
        capture_output=True,
        text=True,
        timeout=30,
    )
    assert "may hang" in done.stdout
    taken = subprocess.run(["flock", "-n", str(lock), "true"], timeout=30)
    assert taken.returncode == 0


def test_answers_come_back(tmp_path: Path) -> None:
    assert as_user.within(10, lambda: {"a": [1, "é\udce4"]}) == {"a": [1, "é\udce4"]}
    with pytest.raises(as_user.NoAnswer, match="ended before"):
        as_user.within(10, lambda: os.listdir(tmp_path / "none"))


def test_a_question_has_its_own_limit_of_memory() -> None:
    """What it reads is others': a header that says nothing costs its reader ten times its size."""
    assert as_user.within(20, lambda: len(bytearray(1 << 20))) == 1 << 20
    with pytest.raises(as_user.NoAnswer, match="before it was finished"):
        as_user.within(20, lambda: len(bytearray(2 * as_user.MEMORY)))


def test_a_signal_does_not_wait_for_the_answer() -> None:
    """Ctrl-C, or the end of a switch, while 547 GB are read."""

    class Cancelled(Exception): ...

    def cancel(*_: object) -> None:
        raise Cancelled

    before = signal.signal(signal.SIGALRM, cancel)
    signal.setitimer(signal.ITIMER_REAL, 0.2)
    began = time.monotonic()
    try:
        with pytest.raises(Cancelled):
            as_user.within(30, lambda: time.sleep(20))
    finally:
        signal.signal(signal.SIGALRM, before)
    assert time.monotonic() - began < 10
