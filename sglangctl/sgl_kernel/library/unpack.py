"""A wheel into site-packages, by root and without running anything: pip belongs to the environment,
and so do the .pth files that it runs when it starts.

What packages left in the environment may be links, and a wheel's names may be anything: nothing is
written outside of site-packages.
"""

from __future__ import annotations

import os
import shutil
import stat
from pathlib import Path, PurePosixPath

from sglangctl.sgl_kernel.library import archive
from sglangctl.util.errors import Unusable


def unpack(wheel: Path, site: Path) -> None:
    """Write the wheel's files below `site`, existing files replaced; Unusable, before anything is
    written, for a name that leads elsewhere and for what only pip can install (scripts)."""
    with archive.opened(wheel) as found:
        members = [
            (item, archive.place(item, wheel)) for item in found.infolist() if not item.is_dir()
        ]
        for item, place in members:
            target = _folder(site, place) / place.name
            target.unlink(missing_ok=True)
            descriptor = os.open(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC)
            with found.open(item) as source, open(descriptor, "wb") as out:
                shutil.copyfileobj(source, out, 1 << 20)
                os.fchmod(descriptor, 0o755 if item.external_attr >> 16 & stat.S_IXUSR else 0o644)


def _folder(site: Path, place: PurePosixPath) -> Path:
    """The member's folder, made where it is missing; Unusable where a link is in its way."""
    folder = site
    for part in place.parent.parts:
        folder = folder / part
        try:
            os.mkdir(folder, 0o755)
            os.chmod(folder, 0o755)
        except FileExistsError:
            if folder.is_symlink() or not folder.is_dir():
                raise Unusable(f"{folder} is no folder: delete it, then deploy again") from None
    return folder
