"""Pipes that CUDA makes for core dumps on demand, and that a process which is killed leaves.

With CUDA_ENABLE_USER_TRIGGERED_COREDUMP=1 they are in the process's working folder: `corepipe_HOST_PID`, as
driver 580 calls them (seen on an H200), or `corepipe.cuda.HOST.PID`, as SGLang does. Only the process itself
removes its pipe.
"""

from __future__ import annotations

import os
import re
import stat
from contextlib import suppress

from sglangctl.proc import procfs
from sglangctl.proc.mounts import Mounts
from sglangctl.util import lazy_re

NAME = lazy_re.compile(r"corepipe(?:\.cuda\..{1,255}\.|_.{1,255}_)([1-9][0-9]{0,9})", re.DOTALL)


def remove(folder: str) -> list[str]:
    """Remove the pipes of processes that are gone, of whichever start; their names.

    Only pipes of the folder's own user: whoever may write there can put links and names of his own.
    Empty where the folder cannot be read, or lies on another machine (its server may be dead). OSError of
    the first pipe that cannot be removed.
    """
    removed: list[str] = []
    place = Mounts().place(folder)
    if not place.local:
        return removed
    try:
        here = os.open(place.path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError:
        return removed
    try:
        owner = os.fstat(here).st_uid
        for name in os.listdir(here):
            found = NAME.fullmatch(name)
            if found is None or procfs.stat(int(found[1])) is not None:
                continue
            with suppress(FileNotFoundError):  # its process has removed it meanwhile, and ended
                status = os.stat(name, dir_fd=here, follow_symlinks=False)
                if stat.S_ISFIFO(status.st_mode) and status.st_uid == owner:
                    os.unlink(name, dir_fd=here)
                    removed.append(name)
    finally:
        os.close(here)
    return sorted(removed)
