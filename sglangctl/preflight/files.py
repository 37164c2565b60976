"""The files that flags name, as the engine's user will find them."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

from sglangctl.diagnosis.finding import FAIL, WARN, Finding
from sglangctl.preflight.catalog import finding
from sglangctl.proc import as_user
from sglangctl.state.config import EngineConfig
from sglangctl.util.values import mapping
from sglangctl.weights.access import closed_part

CLOSED = "is closed to that user"
SHIP = "let that user read it, or ship a file of the controller instead: `{file: ...}`"
LIMIT_S = 30.0
"""For all of them; on a network's file system each takes a moment."""


def look(engine: EngineConfig, user: str) -> Iterator[Finding]:
    """Files and folders that are not there, or closed to `user`."""
    files = engine.preflight.files
    if not files:
        return
    try:
        answer = mapping(as_user.ask(user, lambda: dict(zip(files, map(_closed, files))), LIMIT_S))
    except (PermissionError, KeyError, as_user.NoAnswer) as error:
        why = str(error.args[0]) if error.args else type(error).__name__
        yield finding("flag-file", WARN, f"{', '.join(files)}: not looked at: {why}")
        return
    for path in files:
        if reason := answer.get(path):
            yield finding(
                "flag-file",
                FAIL,
                f"{path}, which a flag names, {reason}",
                SHIP if CLOSED in reason else "put it there, or correct the flag in the inventory",
            )


def _closed(path: str) -> str | None:
    """Why this user cannot read a file or list a folder; None: it can."""
    if os.access(path, os.R_OK | (os.X_OK if os.path.isdir(path) else 0)):
        return None
    try:
        os.stat(path)
    except PermissionError:
        pass
    except OSError as error:
        return f"is not there ({error.strerror})"
    return f"{CLOSED}: {closed_part(Path(path))}"
