"""The fleet's compiled files on the controller: one folder a key, whole or not there at all."""

from __future__ import annotations

import json
import os
import shutil
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sglangctl.sgl_kernel.cache import sha256
from sglangctl.sgl_kernel.key import is_key

ARCHIVE = "compiled.tar"
PROVENANCE = "provenance.json"


@dataclass(frozen=True)
class Entry:
    """An archive, its sha256 compared; and where it is from."""

    key: str
    archive: Path
    provenance: Mapping[str, Any]
    """sha256, files, bytes, inputs, host; `warming_s` of the start that compiled all of it, null where
    that was not measured."""


def find(folder: str, key: str) -> Entry | None:
    """The entry of a key; None without a whole one."""
    if not is_key(key):
        return None
    place = Path(folder) / key
    try:
        provenance = json.loads((place / PROVENANCE).read_text(encoding="utf-8"))
        if sha256(place / ARCHIVE) != provenance["sha256"]:
            return None
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        return None
    return Entry(key, place / ARCHIVE, provenance)


def add(
    folder: str, key: str, provenance: Mapping[str, Any], fetch: Callable[[Path], None]
) -> Entry:
    """Bring an archive in: `fetch` copies it from its host. ValueError when it is not what the provenance
    says; OSError (disk full) leaves no trace."""
    if not is_key(key):
        raise ValueError(f"{key!r} is no key")
    root = Path(folder)
    root.mkdir(parents=True, exist_ok=True)
    staging = Path(tempfile.mkdtemp(prefix=f".{key}-", dir=root))
    try:
        fetch(staging / ARCHIVE)
        (staging / PROVENANCE).write_text(json.dumps(provenance, indent=1) + "\n", "utf-8")
        if sha256(staging / ARCHIVE) != provenance["sha256"]:
            raise ValueError("it arrived with another sha256 than its host says")
        if (there := find(folder, key)) is not None:
            return there
        shutil.rmtree(root / key, ignore_errors=True)
        os.replace(staging, root / key)
    finally:
        shutil.rmtree(staging, ignore_errors=True)
    return Entry(key, root / key / ARCHIVE, provenance)
