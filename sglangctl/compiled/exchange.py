"""What an engine has compiled, on its way: packed for other hosts, or taken from another one.

On a host an archive lies in root's own folder, readable for the engine's group while it is unpacked.
"""

from __future__ import annotations

import os
import pwd
import shutil
import tarfile
from pathlib import Path
from typing import Any

from sglangctl.compiled import archive
from sglangctl.compiled.key import Request, archive_name, inputs, make
from sglangctl.proc import as_user
from sglangctl.proc.folders import folders_below
from sglangctl.sgl_kernel.cache import sha256
from sglangctl.state.compiled import compiled_for
from sglangctl.state.paths import Paths
from sglangctl.util import os_errors
from sglangctl.util.errors import Unusable

NAME = "compiled.tar"
UNPACK_S = 900.0
SOURCES = (".h", ".hpp", ".cuh", ".cu", ".cpp", ".cc", ".inl", ".inc", ".jinja")
"""What ninja compares a compiled file with."""


def look(request: Request, paths: Paths) -> dict[str, Any]:
    """{v, key, inputs, files}: `files` of what was compiled on this host before."""
    found = inputs(request)
    uid = _entry(request).pw_uid
    there = sum(1 for _ in archive.files(_folder(request, paths), uid))
    return {"v": 1, "key": make(found), "inputs": found, "files": there}


def pack(request: Request, paths: Paths) -> dict[str, Any]:
    """{v, key, inputs, path, sha256, files, bytes}: the archive lies under `path`, for root alone."""
    found = inputs(request)
    key = make(found)
    place = paths.compiled / archive_name(key)
    place.mkdir(parents=True, exist_ok=True)
    path = place / NAME
    path.unlink(missing_ok=True)
    try:
        with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as out:
            packed = archive.pack(_folder(request, paths), _entry(request).pw_uid, out)
        if not packed:
            raise Unusable(f"{request.engine} has compiled nothing")
    except BaseException:  # a signal's, too: half an archive is of no use
        path.unlink(missing_ok=True)
        raise
    return {
        "v": 1,
        "key": key,
        "inputs": found,
        "path": str(path),
        "sha256": sha256(path),
        "files": len(packed),
        "bytes": sum(one.size for one in packed),
    }


def adopt(request: Request, key: str, digest: str, paths: Paths) -> dict[str, Any]:
    """Unpack the archive of `key`, which was brought here, as the engine's user. {v, key, files}.

    Where something is there already (a call that is repeated after a lost link) nothing is done. Unusable
    where it is not for this engine and host, or is not whole. The archive is gone then, too.
    """
    path = paths.compiled / archive_name(key) / NAME
    try:
        return {"v": 1, "key": key, "files": _adopt(request, key, digest, path, paths)}
    finally:
        path.unlink(missing_ok=True)


def _adopt(request: Request, key: str, digest: str, path: Path, paths: Paths) -> int:
    """How many files are there now."""
    if make(inputs(request)) != key:
        raise Unusable(f"{key} is not the key of {request.engine} on this host")
    target, entry = _folder(request, paths), _entry(request)
    there = sum(1 for _ in archive.files(target, entry.pw_uid))
    if there:
        return there
    if sha256(path) != digest:
        raise Unusable(f"{path} did not arrive whole")
    with tarfile.open(path, mode="r:") as opened:
        times = [mtime_ns for _, mtime_ns in archive.members(opened)]
    os.chown(path, -1, entry.pw_gid)
    path.chmod(0o640)
    failed = as_user.ask(request.user, lambda: _unpack(path, target), UNPACK_S)
    if failed:
        raise Unusable(f"{target} cannot be filled: {failed}")
    age(Path(request.venv), min(times))
    return len(times)


def age(venv: Path, before_ns: int) -> None:
    """Make the sources of an environment older than what was compiled from them.

    They got the time of their installation, here after the compiling on the other host: ninja would
    compile all of it again. Nothing but their times is changed.
    """
    for folder in folders_below(venv):
        with os.scandir(folder) as entries:
            for entry in entries:
                if not entry.name.endswith(SOURCES) or not entry.is_file(follow_symlinks=False):
                    continue
                status = entry.stat(follow_symlinks=False)
                if status.st_mtime_ns >= before_ns:
                    old = before_ns - 10**9
                    os.utime(entry.path, ns=(status.st_atime_ns, old), follow_symlinks=False)


def _unpack(path: Path, target: Path) -> str | None:
    """In the child, as the engine's user: why it failed, None where it did not."""
    os.umask(0o027)
    try:
        # Without a compiled file in it: what an import leaves there.
        shutil.rmtree(target, ignore_errors=True)
        archive.unpack(path, target)
    except (OSError, Unusable, tarfile.TarError) as error:
        return os_errors.describe(error)
    return None


def _folder(request: Request, paths: Paths) -> Path:
    return paths.cache(request.engine) / compiled_for(request.venv)


def _entry(request: Request) -> pwd.struct_passwd:
    try:
        return pwd.getpwnam(request.user)
    except KeyError:
        raise Unusable(f"there is no user {request.user}") from None
