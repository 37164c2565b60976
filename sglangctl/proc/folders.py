"""Folders of others, who may nest them as deep as they like."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path


def folders_below(top: Path) -> Iterator[str]:
    """The folders from `top` downwards, without recursion: Python's stack ends at 1,000 of them.

    Links are not followed; what cannot be read (or has too long a path) is left out.
    """
    waiting = [str(top)]
    while waiting:
        folder = waiting.pop()
        try:
            with os.scandir(folder) as entries:
                inner = [entry.path for entry in entries if entry.is_dir(follow_symlinks=False)]
        except OSError:
            continue
        yield folder
        waiting += inner
