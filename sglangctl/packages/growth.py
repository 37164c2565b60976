"""How much has come, in bytes, while somebody else fills folders."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from sglangctl.state.files import write_atomic

EVERY_S = 2.0


@contextmanager
def written_to(file: Path | None, size: Callable[[], int]) -> Iterator[None]:
    """While it runs, `file` has one line about how much more there is than before."""
    if file is None:
        yield
        return
    ended = threading.Event()
    began, first = time.monotonic(), size()

    def look() -> None:
        while not ended.wait(EVERY_S):
            with suppress(OSError):  # a sign of life is no reason to end
                text = line(size() - first, time.monotonic() - began)
                write_atomic(file, text.encode(), 0o644)

    thread = threading.Thread(target=look, daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()
        file.unlink(missing_ok=True)


def line(size: int, elapsed_s: float) -> str:
    """`2.1 GiB, 85 MiB/s`; nothing below a megabyte."""
    if size < 2**20:
        return "\n"
    shown = f"{size / 2**30:.1f} GiB" if size >= 2**30 else f"{size / 2**20:.0f} MiB"
    return f"{shown}, {size / 2**20 / max(elapsed_s, 0.001):.0f} MiB/s\n"


def size_of(folder: Path, since: float = 0.0) -> int:
    """Bytes of the files below a folder; with `since` (Unix seconds) only what is below entries of it
    that were made after that."""
    total = 0
    try:
        entries = list(os.scandir(folder))
    except OSError:
        return 0
    for entry in entries:
        with suppress(OSError):  # what is gone again counts no more
            status = entry.stat(follow_symlinks=False)
            if since and status.st_mtime < since:
                continue
            if entry.is_dir(follow_symlinks=False):
                total += size_of(Path(entry.path))
            else:
                total += status.st_size
    return total
