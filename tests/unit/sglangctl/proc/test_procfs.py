"""Reading /proc of processes that choose how much there is to read."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager

from sglangctl.engine.processes import Collector
from sglangctl.proc import procfs
from tests.support.waiting import until

WAITING = ["sh", "-c", "read line"]


@contextmanager
def process(argv: list[str], env: dict[str, str] | None = None) -> Iterator[int]:
    """A process with this command line that waits."""
    program = "/bin/sh" if len(argv) > 1 else "/bin/cat"
    with subprocess.Popen(argv, executable=program, stdin=subprocess.PIPE, env=env) as child:
        try:
            # Popen is done before execve has set where the command line is.
            until(lambda: procfs.cmdline(child.pid)[:1] == argv[:1])
            yield child.pid
        finally:
            child.kill()


def test_a_huge_command_line_is_read_no_further_than_the_limit() -> None:
    with process([*WAITING, *["x" * 100_000] * 15]) as pid:
        words = procfs.cmdline(pid)
    assert words[:3] == WAITING
    assert sum(map(len, words)) <= procfs.LIMIT
    assert set(map(len, words[3:])) == {100_000}  # no piece of a word


def test_a_command_line_of_very_many_words_takes_no_time() -> None:
    with process([*WAITING, *["-"] * 100_000]) as pid:
        assert len(procfs.cmdline(pid)) == procfs.WORDS
        began = time.thread_time()
        Collector().sample([pid])
        assert time.thread_time() - began < 0.1


def test_a_huge_environment_is_read_no_further_than_the_limit() -> None:
    env = {f"V{number}": "z" * 10_000 for number in range(100)}
    with process(["cat"], env) as pid:
        text = until(lambda: procfs.read_text(pid, "environ")) or ""  # set after the command line
    assert 100_000 < len(text) <= procfs.LIMIT
    assert {len(entry.partition("=")[2]) for entry in text.split("\0") if entry} == {10_000}
