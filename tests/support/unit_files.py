"""Files on a made-up host, and the first line of the units that are ours."""

from __future__ import annotations

from pathlib import Path

from sglangctl.state import ownership
from sglangctl.state.paths import Paths

OURS = f"{ownership.HEAD} for the engine kimi.\n[Unit]\n"


def make(paths: Paths, path: str, text: str = "") -> Path:
    file = paths.root / path
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text)
    return file
