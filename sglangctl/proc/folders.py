"""Walk folders of other users, who may nest them as deep as they like."""

from __future__ import annotations

import os
from collections.abc import Container, Iterator
from pathlib import Path


def folders_below(top: Path, without: Container[str] = ()) -> Iterator[str]:
    """The folders from `top` downwards, without recursion: Python's stack ends at 1,000 of them.

    Links are not followed; what cannot be read (or has too long a path) is left out, and so are
    the folders `without` and what is below them.
    """
    waiting = [str(top)]
    while waiting:
        folder = waiting.pop()
        try:
            with os.scandir(folder) as entries:
                inner = [
                    entry.path
                    for entry in entries
                    if entry.path not in without and entry.is_dir(follow_symlinks=False)
                ]
        except OSError:
            continue
        yield folder
        waiting += inner
