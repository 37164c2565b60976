"""Files that the log calls missing: do they exist, but are not readable for the engine's user?

SGLang says "No such file or directory" of a weight file that it may not read. Only files of the
model and the drafter are looked at, not for long (their server may be dead), and nothing is opened: the
log may name any path.
"""

from __future__ import annotations

import os
import pwd
import stat
from collections.abc import Iterable

from sglangctl.proc import as_user
from sglangctl.util import lazy_re
from sglangctl.util.values import mapping

_SAID = (
    "No such file or directory",
    "Repo id must be in the form",
    "does not appear to have a file named",
    "Cannot find any model weights",
    "is not a local folder",
)
_PATH = lazy_re.compile(r"/[^\s'\"`,;]{1,1000}")
_MOST = 8
LIMIT_S = 5.0


def closed(text: str, folders: Iterable[str], user: str) -> dict[str, str]:
    """Of the paths in `text` (a piece of the log) below `folders`, or such a folder itself, those
    that are there and that `user` cannot read; and why. Empty where that cannot be
    told; as_user.NoAnswer after LIMIT_S."""
    if not any(said in text for said in _SAID):
        return {}
    try:
        entry = pwd.getpwnam(user)
        groups = set(os.getgrouplist(user, entry.pw_gid))
    except (KeyError, OSError):
        return {}
    below = tuple(folder.rstrip("/") for folder in folders if folder.strip("/"))
    named: list[str] = []
    for line in text.splitlines():
        if not any(said in line for said in _SAID):
            continue
        for match in _PATH.finditer(line[:4000]):
            path = match[0].rstrip(".:)]")
            ours = any(path == folder or path.startswith(folder + "/") for folder in below)
            if ours and path not in named and len(named) < _MOST:
                named.append(path)
    if not named:
        return {}
    uid = entry.pw_uid
    found = as_user.within(LIMIT_S, lambda: {one: _why(one, user, uid, groups) for one in named})
    return {path: why for path, why in mapping(found).items() if why}


def _why(path: str, user: str, uid: int, groups: set[int]) -> str:
    """The first part of the path that is closed to the user; empty: none, or it does not exist."""
    if uid == 0:
        return ""
    try:
        real = os.path.realpath(path)
        final = os.stat(real)
        parts = real.split("/")
        for count in range(1, len(parts)):
            folder = "/".join(parts[:count]) or "/"
            if not _may(os.stat(folder), uid, groups, stat.S_IXOTH):
                return _sentence(folder, os.stat(folder), user, "folder")
    except (OSError, ValueError):
        return ""
    needed = stat.S_IROTH | (stat.S_IXOTH if stat.S_ISDIR(final.st_mode) else 0)
    if _may(final, uid, groups, needed):
        return ""
    return _sentence(real, final, user, "folder" if stat.S_ISDIR(final.st_mode) else "file")


def _may(found: os.stat_result, uid: int, groups: set[int], needed: int) -> bool:
    """Whether the mode lets the user in; `needed`: bits of the class `others`."""
    if found.st_uid == uid:
        needed <<= 6
    elif found.st_gid in groups:
        needed <<= 3
    return found.st_mode & needed == needed


def _sentence(path: str, found: os.stat_result, user: str, what: str) -> str:
    mode = f"mode {stat.S_IMODE(found.st_mode):04o}, owner {found.st_uid}:{found.st_gid}"
    return f"it exists, but the {what} {path} ({mode}) is not readable for {user}"
