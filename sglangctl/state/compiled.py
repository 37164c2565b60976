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
from sglangctl.state.config import EngineConfig
from sglangctl.state.paths import Paths
from sglangctl.util import lazy_re

FOLDER = "compiled"
_OURS = lazy_re.compile(r"[0-9a-f]{16}")
DELETE_S = 120.0
"""For the deletion of what older environments have compiled."""


def compiled_for(venv: str) -> str:
    """The folder of what is compiled in an environment, below the engine's cache."""
    return f"{FOLDER}/{os.path.basename(venv)}"


def forget_unused(engine: EngineConfig, paths: Paths) -> None:
    """Delete what was compiled in environments that no release of the engine names any more.

    With the rights of its user, who may have put links there. What cannot be deleted takes room, and
    nothing else.
    """
    used = {release.venv(engine.name, one, paths) for one in release.staged(engine.name, paths)}
    keep = {os.path.basename(venv) for venv in used if venv}
    folder = paths.cache(engine.name) / FOLDER
    with suppress(OSError, KeyError, as_user.NoAnswer):
        as_user.ask(engine.user, lambda: _delete(folder, keep), DELETE_S)


def _delete(folder: Path, keep: set[str]) -> None:
    for one in os.listdir(folder):
        if _OURS.fullmatch(one) and one not in keep:
            shutil.rmtree(folder / one, ignore_errors=True)
