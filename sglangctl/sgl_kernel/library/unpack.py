"""A wheel into site-packages, by root and without running anything: pip belongs to the environment,
and so do the .pth files that it runs when it starts.

What packages left in the environment may be links, and a wheel's names may be anything: nothing is
written outside of site-packages.
"""

from __future__ import annotations

import os
import shutil
import stat
import zipfile
from pathlib import Path, PurePosixPath

from sglangctl.util.errors import Unusable

INTO_SITE = ("purelib", "platlib")
"""The folders of NAME.data whose content belongs there."""


def unpack(wheel: Path, site: Path) -> None:
    """Write the wheel's files below `site`, existing files replaced; Unusable, before anything is
    written, for a name that leads elsewhere and for what only pip can install (scripts)."""
    with zipfile.ZipFile(wheel) as archive:
        members = [(item, _place(item, wheel)) for item in archive.infolist() if not item.is_dir()]
        for item, place in members:
            target = _folder(site, place) / place.name
            target.unlink(missing_ok=True)
            descriptor = os.open(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC)
            with archive.open(item) as source, open(descriptor, "wb") as out:
                shutil.copyfileobj(source, out, 1 << 20)
                os.fchmod(descriptor, 0o755 if item.external_attr >> 16 & stat.S_IXUSR else 0o644)


def _place(item: zipfile.ZipInfo, wheel: Path) -> PurePosixPath:
    """Where a member goes, relative to site-packages."""
    parts = item.filename.split("/")
    if not all(part not in ("", ".", "..") and "\0" not in part for part in parts):
        raise Unusable(f"{wheel.name} has a file {item.filename!r}: it is not installed")
    kind = stat.S_IFMT(item.external_attr >> 16)
    if kind not in (0, stat.S_IFREG):
        raise Unusable(f"{wheel.name}: {item.filename!r} is no plain file: it is not installed")
    if parts[0].endswith(".data"):
        if len(parts) < 3 or parts[1] not in INTO_SITE:
            raise Unusable(
                f"{wheel.name} has {item.filename!r}, which goes elsewhere than into site-packages: "
                "a kernel's wheel has no scripts and no headers"
            )
        parts = parts[2:]
    return PurePosixPath(*parts)


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
