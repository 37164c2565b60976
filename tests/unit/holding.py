"""Real processes on fake devices, for tests of this machine alone (no container)."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path


def devices(folder: Path, number: int = 2) -> str:
    """Make nvidia0 ... as files; returns the prefix for openfiles.DEVICES."""
    for index in range(number):
        (folder / f"nvidia{index}").touch()
    return str(folder / "nvidia")


@contextmanager
def holding(
    prefix: str,
    gpus: str,
    argv: Sequence[str | bytes],
    executable: str = "cat",
    ignore_term: bool = False,
) -> Iterator[subprocess.Popen[bytes]]:
    """A process with that command line which has GPUs open until the end of the block.

    `cat` without operands (or `grep`) reads its standard input for ever, whatever its argv[0] is.
    """
    opened = [os.open(prefix + gpu, os.O_RDONLY) for gpu in gpus.split(",") if gpu]
    child = subprocess.Popen(
        list(argv),
        executable=shutil.which(executable),
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        pass_fds=opened,
        # What is ignored stays ignored in the program that is started.
        preexec_fn=(lambda: signal.signal(signal.SIGTERM, signal.SIG_IGN)) if ignore_term else None,
    )
    for descriptor in opened:
        os.close(descriptor)
    try:
        yield child
    finally:
        child.kill()
        child.wait()
        assert child.stdin
        child.stdin.close()
