"""Real processes on fake devices, for tests of this machine alone (no container)."""

from __future__ import annotations

import os
import shutil
import signal
import stat
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path


def devices(folder: Path, number: int = 2) -> str:
    """Make nvidia0 ... as device nodes (of /dev/null); returns the prefix for openfiles.DEVICES."""
    for index in range(number):
        os.mknod(folder / f"nvidia{index}", 0o666 | stat.S_IFCHR, os.makedev(1, 3))
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


@contextmanager
def passable() -> Iterator[Path]:
    """A folder that every user may pass and read (pytest's own are closed to others)."""
    with tempfile.TemporaryDirectory(dir="/tmp") as folder:
        os.chmod(folder, 0o755)
        yield Path(folder)


def as_user(user: int) -> list[str]:
    """The beginning of a command line that runs the rest as that user, with no rights but its own."""
    return ["setpriv", f"--reuid={user}", f"--regid={user}", "--clear-groups", "--"]
