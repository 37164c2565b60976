"""Shared memory in /dev/shm, told by device and inode: the path that a process shows proves nothing.

Whoever writes a file can call it /tmp/u/dev/shm/x, make /dev/shm/d a link, or mount a tmpfs of its
own on /dev/shm. So a segment is a plain file directly in this host's /dev/shm, of the process's own
user, and the very file that /proc/PID/maps says it has mapped (proc_pid_maps(5): device and inode
beside the path). Such a file its user could delete as well: nobody gains by having it deleted.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from sglangctl.proc import procfs

SHM = "/dev/shm"
PREFIX = SHM.encode() + b"/"


@dataclass(frozen=True, order=True)
class Segment:
    """One file, `name` directly in /dev/shm."""

    name: str
    device: int
    inode: int

    @property
    def path(self) -> str:
        return f"{SHM}/{self.name}"


def of_process(pid: int, uid: int) -> set[Segment]:
    """The segments of user `uid` that a process has mapped; none where we may not look."""
    found: set[Segment] = set()
    try:
        with _Folder() as folder:
            for device, inode, path in _mapped(pid):
                name = path[len(PREFIX) :]
                if not path.startswith(PREFIX) or b"/" in name:
                    continue
                segment = Segment(os.fsdecode(name), device, inode)
                if folder.owner(segment) == uid:
                    found.add(segment)
    except OSError:
        pass  # the process is gone, access is denied, or there is no /dev/shm
    return found


def there(segments: Iterable[Segment]) -> list[Segment]:
    """Those that are still in /dev/shm, sorted."""
    try:
        with _Folder() as folder:
            return sorted(one for one in segments if folder.owner(one) is not None)
    except OSError:
        return []


def users(segments: Iterable[Segment]) -> dict[Segment, int]:
    """Segment -> a process that has it mapped or open. (Some hosts keep init's mappings even from
    root: who cannot be looked at does not count, and keeps what it has mapped all the same.)"""
    by_file = {(one.device, one.inode): one for one in segments}
    by_name = {one.name: one for one in by_file.values()}
    found: dict[Segment, int] = {}
    for pid in procfs.pids():
        # Open files by name alone: a look at them could wait for ever on a dead file system.
        for link in procfs.links(pid):
            opened = by_name.get(link.rpartition("/")[2].removesuffix(" (deleted)"))
            if opened is not None:
                found[opened] = pid
        try:
            for device, inode, _ in _mapped(pid):
                mapped = by_file.get((device, inode))
                if mapped is not None:
                    found[mapped] = pid
        except OSError:
            continue
    return found


def unlink(segment: Segment) -> None:
    """Delete it; OSError when that cannot be done, FileNotFoundError when it is another file now."""
    with _Folder() as folder:
        if folder.owner(segment) is None:
            raise FileNotFoundError(f"{segment.path} is gone")
        os.unlink(segment.name, dir_fd=folder.descriptor)


class _Folder:
    """/dev/shm, held open."""

    def __enter__(self) -> _Folder:
        flags = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
        self.descriptor = os.open(SHM, flags)
        return self

    def __exit__(self, *_: object) -> None:
        os.close(self.descriptor)

    def owner(self, segment: Segment) -> int | None:
        """The user whose plain file it is; None when there is none, or another by that name."""
        try:
            status = os.stat(segment.name, dir_fd=self.descriptor, follow_symlinks=False)
        except (OSError, ValueError):
            return None
        same = (status.st_dev, status.st_ino) == (segment.device, segment.inode)
        return status.st_uid if same and stat.S_ISREG(status.st_mode) else None


def _mapped(pid: int) -> Iterator[tuple[int, int, bytes]]:
    """(device, inode, path) of each mapping of a file; line by line, because there may be many.

    OSError when the process is gone or access is denied.
    """
    with open(f"{procfs.PROC}/{pid}/maps", "rb") as file:
        for line in file:
            fields = line.rstrip(b"\n").split(None, 5)
            if len(fields) == 6 and fields[4] != b"0":
                major, _, minor = fields[3].partition(b":")
                yield os.makedev(int(major, 16), int(minor, 16)), int(fields[4]), fields[5]
