"""An OSError as one sentence for the operator: the file or resource, the reason, and what to do."""

from __future__ import annotations

import errno
import os

_FULL = (errno.ENOSPC, errno.EDQUOT)
_SUDO = (errno.EACCES, errno.EPERM)
_REASONS = {
    errno.ENOENT: "{path} does not exist",
    errno.ENOTDIR: "{path} cannot be reached: a part of it is not a folder",
    errno.EISDIR: "{path} is a folder",
    errno.EROFS: "{path} cannot be written: its file system is read-only (dmesg | tail says why)",
    errno.ELOOP: "{path} is a symbolic link, or a loop of links",
    errno.EIO: "{path}: the disk does not answer as it should (dmesg | tail)",
    errno.EMFILE: "too many files are open in this process (ulimit -n)",
    errno.ENFILE: "too many files are open on this host (sysctl fs.file-max)",
    errno.ENOMEM: "this host is out of memory (free -h)",
}


def sentence(error: OSError) -> str:
    """The error's path and reason as text; never `[Errno n]`."""
    path = next((os.fsdecode(name) for name in _names(error)), "")
    if error.errno in _FULL:
        where = os.path.dirname(path) or "."
        if not path:
            return "a disk is full: free some room (df -h shows which), then run it again"
        return f"{path} cannot be written: the disk is full (df {where}); free some room"
    if error.errno in _SUDO:
        by = "by root either (a sandbox, or another file system)" if os.geteuid() == 0 else ""
        what = path or "something that it needs"
        return f"{what} cannot be read or written {by or 'by this user: run it with sudo'}"
    known = _REASONS.get(error.errno or 0)
    if known is not None and (path or "{path}" not in known):
        return known.format(path=path)
    reason = error.strerror or str(error) or type(error).__name__
    return f"{path}: {reason}" if path else reason


def describe(error: Exception) -> str:
    """`sentence` for an OSError, else the error's own message."""
    return sentence(error) if isinstance(error, OSError) else str(error)


def _names(error: OSError) -> list[str | bytes]:
    # Of a rename the target is what the user knows.
    found = (error.filename2, error.filename)
    return [name for name in found if isinstance(name, (str, bytes)) and name]
