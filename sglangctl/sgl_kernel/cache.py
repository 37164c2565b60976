"""The cache of built wheels: `<key>/` holds one wheel and its provenance.json, whole or not at all.

An entry appears in one rename. It is trusted only as far as its wheel has the sha256 that its
provenance says.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sglangctl.sgl_kernel.key import is_key
from sglangctl.state.files import sync_folder, write_atomic
from sglangctl.state.paths import Paths

PROVENANCE = "provenance.json"


@dataclass(frozen=True)
class Entry:
    """One built wheel."""

    key: str
    wheel: Path
    sha256: str
    provenance: dict[str, Any]


def find(key: str, paths: Paths | None = None) -> Entry | None:
    """The entry of a key whose wheel is whole; None without one (a damaged one counts as none)."""
    if not is_key(key):
        return None
    return read((paths or Paths()).kernel_cache / key)


def read(folder: Path) -> Entry | None:
    """An entry from its folder, its wheel's sha256 computed and compared."""
    try:
        provenance = json.loads((folder / PROVENANCE).read_text(encoding="utf-8"))
        wheel = folder / Path(str(provenance["wheel"]["file"])).name
        wanted, key = str(provenance["wheel"]["sha256"]), str(provenance["key"])
        if sha256(wheel) != wanted:
            return None
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        return None
    return Entry(key, wheel, wanted, provenance)


def keys(paths: Paths | None = None) -> list[str]:
    """The keys of this host's cache, their wheels not read."""
    root = (paths or Paths()).kernel_cache
    return sorted(
        item.name for item in root.glob("*") if is_key(item.name) and (item / PROVENANCE).is_file()
    )


def entries(paths: Paths | None = None) -> list[Entry]:
    """All whole entries of this host, by key."""
    root = (paths or Paths()).kernel_cache
    return [entry for name in keys(paths) if (entry := read(root / name)) is not None]


def promote(key: str, wheel: Path, provenance: dict[str, Any], paths: Paths | None = None) -> Entry:
    """Put a validated wheel into the cache, in one rename; OSError (disk full) leaves no trace."""
    root = (paths or Paths()).kernel_cache
    root.mkdir(parents=True, exist_ok=True)
    staging = root / f".staging-{key}-{os.getpid()}"
    shutil.rmtree(staging, ignore_errors=True)
    try:
        staging.mkdir(mode=0o755)
        target = staging / wheel.name
        shutil.copyfile(wheel, target)
        with open(target, "rb") as file:
            os.fsync(file.fileno())
        text = json.dumps(provenance, indent=1) + "\n"
        write_atomic(staging / PROVENANCE, text.encode(), 0o644)
        if read(staging) is None:
            raise OSError(f"the copy of {wheel.name} is not what was built")
        old = root / key
        if old.exists():
            # Only a damaged or older entry is here; readers hold no open files across it.
            os.replace(old, root / f".old-{key}-{os.getpid()}")
        os.replace(staging, old)
        sync_folder(root)
    finally:
        shutil.rmtree(staging, ignore_errors=True)
        shutil.rmtree(root / f".old-{key}-{os.getpid()}", ignore_errors=True)
    entry = find(key, paths)
    if entry is None:
        raise OSError(f"{root / key} is not readable after it was written")
    return entry


def sha256(path: Path) -> str:
    """Of a file's content, read in pieces."""
    total = hashlib.sha256()
    with open(path, "rb") as file:
        while piece := file.read(2**20):
            total.update(piece)
    return total.hexdigest()
