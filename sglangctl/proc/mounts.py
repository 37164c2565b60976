"""On which file system a path lies, found without touching any but local ones: on a network mount whose
server is dead, every access waits forever."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass

from sglangctl.proc import procfs

LOCAL = frozenset(
    [
        "bcachefs",
        "btrfs",
        "devtmpfs",
        "erofs",
        "ext2",
        "ext3",
        "ext4",
        "f2fs",
        "jfs",
        "overlay",
        "ramfs",
        "reiserfs",
        "rootfs",
        "squashfs",
        "tmpfs",
        "xfs",
        "zfs",
    ]
)
"""File systems that no other machine and no user's program answers for."""
LINKS = 40
"""Links in one path that are followed, as in Linux."""


@dataclass(frozen=True)
class Place:
    """`path` without links as far as it is local; `kind` and `point` of the mount where it ends."""

    path: str
    kind: str
    point: str

    @property
    def local(self) -> bool:
        return self.kind in LOCAL


class Mounts:
    """The mounts that a process sees (None: we), as they are when this is made."""

    def __init__(self, pid: int | None = None) -> None:
        self.kinds: dict[str, str] = {}
        """Mount point -> file system's type; of several on one point, the uppermost."""
        self.by_id: dict[str, str] = {}
        for line in (procfs.read_text(pid or os.getpid(), "mountinfo") or "").splitlines():
            before, _, after = line.partition(" - ")
            words = before.split(" ")
            if len(words) >= 5 and after:
                kind = after.split(" ")[0]
                self.by_id[words[0]] = kind
                self.kinds[re.sub(r"\\([0-7]{3})", lambda m: chr(int(m[1], 8)), words[4])] = kind

    def place(self, path: str) -> Place:
        """Where an absolute path leads. What is behind a mount point of another kind than LOCAL is
        neither looked at nor resolved; what does not exist is where it would be."""
        left = [part for part in reversed(path.split("/")) if part not in ("", ".")]
        at, links = "", 0
        point = "/"
        while left:
            part = left.pop()
            if part == "..":
                at = at.rpartition("/")[0]
                point = self._point(at)
                continue
            here = f"{at}/{part}"
            if here in self.kinds:
                at = point = here
                if self.kinds[here] not in LOCAL:
                    return Place("/".join([at, *reversed(left)]), self.kinds[here], here)
                continue
            try:
                target = os.readlink(here)
            except OSError:
                at = here
                continue
            links += 1
            if links > LINKS:
                return Place(here, "a loop of links", here)
            if target.startswith("/"):
                at, point = "", "/"
            left += [part for part in reversed(target.split("/")) if part not in ("", ".")]
        return Place(at or "/", self.kinds.get(point, "unknown"), point)

    def _point(self, path: str) -> str:
        while path and path not in self.kinds:
            path = path.rpartition("/")[0]
        return path or "/"


def kind_of_open(pid: int, descriptor: str, mounts: Mounts) -> str | None:
    """The file system's type of a file that a process has open, given its `mounts`; "unknown" where
    the mount is not among them (any more), None where the file is not open any more."""
    text = procfs.read_text(pid, f"fdinfo/{descriptor}") or ""
    found = re.search(r"^mnt_id:\s+(\d+)$", text, re.MULTILINE)
    return mounts.by_id.get(found[1], "unknown") if found else None
