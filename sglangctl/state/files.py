"""Facts about files, and atomic writes.

`describe` answers what the controller compares: kind, sha256, mode, owner, and for a file that
differs from what is wanted its text, with the values of secret names taken out.
"""

from __future__ import annotations

import grp
import hashlib
import os
import pwd
import re
import stat
from pathlib import Path
from typing import Any

from sglangctl.util import lazy_re, os_errors

LARGEST_TEXT = 256 * 1024
"""Bytes of a file that are compared by content; our own files are a few kB."""
ASSIGNMENT = lazy_re.compile(
    r"^(?P<name>[A-Za-z0-9_.-]+)(?P<sign>=|: )(?P<value>.*)$", re.MULTILINE
)


def describe(path: str, wanted: str | None = None) -> dict[str, Any]:
    """{kind: file|directory|link|other|absent|unknown, ...} of one path, links not followed.

    A file has `sha256`, and `text` when its sha256 is not `wanted` (masked; None when it is not
    text). All have mode (octal string), owner, group and mtime (Unix seconds); a link has `target`
    and `to_directory`.
    `unknown` comes with `reason` (no permission).
    """
    try:
        status = os.lstat(path)
    except (FileNotFoundError, NotADirectoryError):
        return {"kind": "absent"}
    except OSError as error:
        return {"kind": "unknown", "reason": os_errors.describe(error)}
    facts: dict[str, Any] = {
        "mode": f"{stat.S_IMODE(status.st_mode):04o}",
        "owner": _name(pwd.getpwuid, status.st_uid),
        "group": _name(grp.getgrgid, status.st_gid),
        "mtime": status.st_mtime,
    }
    if stat.S_ISLNK(status.st_mode):
        return {
            "kind": "link",
            "target": os.readlink(path),
            "to_directory": os.path.isdir(path),
            **facts,
        }
    if stat.S_ISDIR(status.st_mode):
        return {"kind": "directory", **facts}
    if not stat.S_ISREG(status.st_mode) or status.st_size > LARGEST_TEXT:
        return {"kind": "other", **facts}
    try:
        with open(path, "rb") as file:
            data = file.read()
    except OSError as error:
        return {"kind": "unknown", "reason": os_errors.describe(error), **facts}
    facts["sha256"] = hashlib.sha256(data).hexdigest()
    if wanted is not None and facts["sha256"] != wanted:
        facts["text"] = masked_text(data)
    return {"kind": "file", **facts}


def masked_text(data: bytes) -> str | None:
    """The text of one of our files without secrets: the values of secret names, and what a bundle leaves
    out, because somebody may have written it in by hand (`Environment=HF_TOKEN=...`). None for binary."""
    # Here: every start of an engine waits for this module, which reads its configuration.
    from sglangctl.masking.names import MASK, is_secret_name
    from sglangctl.masking.scrub import joined, scrub

    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError:
        return None
    return scrub(
        ASSIGNMENT.sub(
            lambda match: (
                f"{match['name']}{match['sign']}{MASK}"
                if is_secret_name(match["name"])
                else match.group()
            ),
            joined(text),
        )
    )


def no_room(folder: Path, size: int = 65536) -> str | None:
    """Why no file of `size` bytes can be made in a folder now (read-only, full); None: it can."""
    import tempfile

    try:
        with tempfile.TemporaryFile(prefix=".sglangctl-", dir=folder) as file:
            file.write(bytes(size))
    except OSError as error:
        return error.strerror
    return None


def write_atomic(path: Path, data: bytes, mode: int, uid: int = -1, gid: int = -1) -> None:
    """Put `data` at `path`: written beside it, owned, fsynced, renamed, the folder fsynced."""
    beside = path.with_name(f".{path.name}.new")
    try:
        _write_whole(beside, data, mode, uid, gid)
        os.replace(beside, path)
    except OSError as error:
        beside.unlink(missing_ok=True)
        raise OSError(error.errno, f"cannot write: {error.strerror}", str(path)) from None
    sync_folder(path.parent)


def _write_whole(path: Path, data: bytes, mode: int, uid: int, gid: int) -> None:
    # Anew: what is left of an interrupted run may be wider, and in a folder of others (a venv, that
    # of node_exporter) it may be their link to a file of root's.
    path.unlink(missing_ok=True)
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    descriptor = os.open(path, flags, 0o600)
    try:
        with open(descriptor, "wb", closefd=False) as file:
            file.write(data)
        os.fchown(descriptor, uid, gid)
        os.fchmod(descriptor, mode)
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def link_atomic(path: Path, target: str) -> None:
    """Make `path` a symbolic link to `target`, in one move."""
    beside = path.with_name(f".{path.name}.new")
    beside.unlink(missing_ok=True)
    beside.symlink_to(target)
    os.replace(beside, path)
    sync_folder(path.parent)


def sync_folder(folder: Path) -> None:
    """Make renames in `folder` survive a power cut."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _name(lookup: Any, number: int) -> str:
    try:
        return str(lookup(number)[0])
    except KeyError:
        return str(number)
