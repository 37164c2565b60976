"""What an engine compiles while it runs: one folder for each of its environments.

Another environment may have another torch, and code that was compiled for one must never be loaded by
the other. The next release of the same environment finds what the one before has compiled.
"""

from __future__ import annotations

import os
import shutil
from contextlib import suppress
from pathlib import Path

from sglangctl.proc import as_user
from sglangctl.state import release
from sglangctl.state.config import load_engine
from sglangctl.state.paths import Paths
from sglangctl.util import lazy_re
from sglangctl.util.errors import Failed

FOLDER = "compiled"
_OURS = lazy_re.compile(r"[0-9a-f]{16}(?:\.incoming)?")
"""An environment's; `.incoming`: left by an unpacking that was killed (sglangctl/compiled/archive.py)."""
DELETE_S = 120.0
"""For the deletion of what older environments have compiled."""


def compiled_for(venv: str) -> str:
    """The folder of what is compiled in an environment, below the engine's cache."""
    return f"{FOLDER}/{os.path.basename(venv)}"


def forget_unused(name: str, paths: Paths) -> None:
    """Delete what was compiled in environments that no release of the engine names any more.

    With the rights of its user, who may have put links there. What cannot be deleted takes room, and
    nothing else; so does everything where a damaged file hides what is used.
    """
    with suppress(Failed, OSError, KeyError, as_user.NoAnswer):
        user = load_engine(name, paths).user
        used = {release.venv(name, one, paths) for one in release.staged(name, paths)}
        keep = {os.path.basename(venv) for venv in used if venv}
        folder = paths.cache(name) / FOLDER
        as_user.ask(user, lambda: _delete(folder, keep), DELETE_S)


def _delete(folder: Path, keep: set[str]) -> None:
    for one in os.listdir(folder):
        if _OURS.fullmatch(one) and one not in keep:
            shutil.rmtree(folder / one, ignore_errors=True)
