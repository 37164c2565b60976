"""The probe's part about virtual environments. Nothing of them is run: their packages are other
people's code, and the probe is root's."""

from __future__ import annotations

import json
import os
import re
import stat
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from sglangctl.probe.machine import DISTRIBUTION
from sglangctl.sgl_kernel.library.metadata import normalized
from sglangctl.state import release
from sglangctl.state.config import EngineConfig
from sglangctl.state.ownership import MARKER
from sglangctl.state.paths import Paths
from sglangctl.systemd import confined
from sglangctl.systemd.unit import Unit
from sglangctl.util import os_errors
from sglangctl.util.plain_files import read_text, text_of
from sglangctl.util.terminal import escaped
from sglangctl.util.values import mapping

UNFINISHED = "not finished"
"""Its marker is missing: it was never verified, or that was lost."""
KERNELS = ("sgl-kernel", "sglang-kernel")
ASK_S = 30.0
READABLE = stat.S_IROTH | stat.S_IXOTH


def describe(path: str, python: str | None) -> dict[str, Any]:
    """{wrong, starts, python}: what is wrong with a venv (null: nothing); whether its Python is
    there; and where something is wrong, why `python` cannot make a new one (null: it can)."""
    try:
        wrong, starts = damage(Path(path)), (Path(path) / "bin/python").exists()
    except OSError as error:
        # A disk that does not answer: an engine may well run from it.
        wrong, starts = os_errors.describe(error), True
    return {
        "wrong": wrong,
        "starts": starts,
        "python": cannot_make(python) if wrong and python else None,
    }


def damage(venv: Path) -> str | None:
    """What of a finished venv is lost or closed to its engine's user; None where it is whole, as far
    as a few looks at it can tell."""
    python = venv / "bin/python"
    if not os.path.lexists(venv):
        return "new"
    if not (venv / MARKER).is_file():
        return UNFINISHED
    if not python.exists():
        return f"{python} is gone" if not python.is_symlink() else f"{python} leads nowhere"
    text = text_of(venv / "pyvenv.cfg")
    said = re.search(r"^version\s*=\s*(\d+\.\d+)", text, re.MULTILINE)
    if said is None:
        return f"{venv}/pyvenv.cfg is gone or cut"
    version = said[1]
    name = os.path.basename(os.path.realpath(python))
    found = re.fullmatch(r"python(3\.\d+)t?", name)
    if found and found[1] != version:
        return f"made for Python {version}, and {python} is {found[1]} now"
    site = venv / f"lib/python{version}/site-packages"
    # Where the system's packages count too, the engine may be one of them.
    alone = "include-system-site-packages = true" not in text
    inside = [site / "sglang"] if alone else []
    for folder in (venv, venv / "bin", site.parent.parent, site.parent, site, *inside):
        try:
            mode = folder.stat().st_mode
        except OSError:
            return f"{folder} is gone"
        if mode & READABLE != READABLE:
            return f"{folder} has mode {stat.S_IMODE(mode):04o}"
    changed = changed_packages(venv, site, alone)
    return f"changed by hand since it was verified: {', '.join(changed)}" if changed else None


def changed_packages(venv: Path, site: Path, alone: bool) -> list[str]:
    """`NAME VERSION` of what was installed since a venv was verified, and `NAME is gone`. From the
    dist-info folders. `alone`: the system's packages do not count; where they do, a pin may be one.

    The kernel is not among it: a deploy installs that afterwards, and looks at it itself.
    """
    marker = venv / MARKER
    try:
        verified = marker.stat().st_mtime
        pinned = mapping(mapping(json.loads(read_text(marker))).get("packages"))
        entries = os.listdir(site)
    except (OSError, ValueError, RecursionError):
        return []
    found, newer = set(KERNELS), []
    for entry in entries:
        match = DISTRIBUTION.fullmatch(entry)
        if match is None or normalized(match[1]) in KERNELS:
            continue
        found.add(normalized(match[1]))
        record = site / entry / "RECORD"
        if record.exists() and record.stat().st_mtime > verified:
            newer.append(f"{match[1]} {match[2]}")
    lost = [name for name in sorted(pinned) if normalized(name) not in found] if alone else []
    return sorted(newer) + [f"{name} is gone" for name in lost]


def cannot_make(python: str) -> str | None:
    """Why this Python cannot make a venv; None where it can. Debian has these two apart.

    Not with root's rights: it may be a user's own, and not root makes venvs with it.
    """
    user = "nobody" if os.geteuid() == 0 else None
    try:
        done = confined.run([python, "-I", "-c", "import venv, ensurepip"], user, limit_s=ASK_S)
    except OSError as error:
        return os_errors.describe(error)
    if done.returncode == 0:
        return None
    return escaped(confined.refusal(done))


def running_from(
    engines: Mapping[str, EngineConfig], shown: Mapping[str, Unit] | None, paths: Paths
) -> dict[str, list[str]]:
    """venv -> engines whose live release names it and whose unit runs, or is about to."""
    found: dict[str, list[str]] = {}
    for name, engine in engines.items():
        unit = (shown or {}).get(engine.unit)
        venv = release.venv_of(paths.current(name) / "manifest.json")
        if venv is not None and unit is not None and (unit.running or unit.job):
            found.setdefault(str(venv), []).append(name)
    return found
