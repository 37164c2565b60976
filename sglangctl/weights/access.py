"""Why a file cannot be opened by the user who tries to: which part of its path is in the way."""

from __future__ import annotations

import errno
import os
import pwd
import shlex
from pathlib import Path

from sglangctl.diagnosis.finding import FAIL, Finding
from sglangctl.util.terminal import escaped
from sglangctl.weights.safetensors import shown

NO_FILE = (errno.EISDIR, errno.EINVAL)
"""A folder, a pipe or a device by the name of a file."""


def refusal(path: Path, error: OSError) -> Finding:
    """One finding for a file or folder that could not be opened.

    SGLang calls a file that it may not read "No such file or directory", so the two are told apart.
    """
    text = shown(str(path))
    if isinstance(error, PermissionError):
        what, real = closed_part(path), Path(os.path.realpath(path))
        part = shlex.quote(escaped(str(_parted(path))))
        fix = f"as root: chmod o+rX {part} (or give its group to that user)"
        if os.path.islink(path) and Path(os.path.realpath(path.parent)) not in real.parents:
            # Whoever owns the folder chooses what root would open to everybody.
            what = f"it is a link to {shown(str(real))}, and {what}"
            fix = f"if that is a file of the model: {fix}"
        return Finding(
            "weights-unreadable",
            FAIL,
            f"{text} exists, but user {_user()} cannot read it: {what}",
            fix,
        )
    if os.path.islink(path) and not path.exists():
        target = shown(os.readlink(path))
        return Finding(
            "weights-missing",
            FAIL,
            f"{text} is a link to {target}, which does not exist",
            "download that file again, or copy the folder with cp -L",
        )
    if isinstance(error, FileNotFoundError):
        return Finding("weights-missing", FAIL, f"{text} is missing", "download that file again")
    fix = "move it away, and download that file again" if error.errno in NO_FILE else "dmesg | tail"
    return Finding("weights-unreadable", FAIL, f"{text}: {error.strerror or error}", fix)


def closed_part(path: Path) -> str:
    """The first part of the path that this user may not go through, or the file itself."""
    part = _parted(path)
    if part == path:
        mode = f"mode {os.stat(path).st_mode & 0o7777:04o}" if os.path.exists(path) else "its mode"
        return f"{mode} of the {'folder' if os.path.isdir(path) else 'file'}"
    return f"the folder {shown(str(part))} is closed to that user"


def _parted(path: Path) -> Path:
    real = Path(os.path.realpath(path))
    for folder in reversed(real.parents):
        if not os.access(folder, os.X_OK):
            return folder
    return real if real != path and os.path.lexists(real) else path


def _user() -> str:
    try:
        return pwd.getpwuid(os.geteuid()).pw_name
    except KeyError:
        return str(os.geteuid())
