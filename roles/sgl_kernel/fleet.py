"""The fleet's cache: built wheels on the controller, one folder a key, read by everyone.

An entry is whole or not there: it is copied beside its place and renamed, and its wheel is only
trusted with the sha256 that its provenance names.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path

from sglangctl.sgl_kernel import cache
from sglangctl.sgl_kernel.key import is_key, make, parse

WHEEL = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.+-]{0,200}\.whl")


def keys(folder: str) -> tuple[str, ...]:
    """The keys of the cache; none where there is no cache yet."""
    try:
        names = os.listdir(folder)
    except OSError:
        return ()
    return tuple(sorted(name for name in names if is_key(name) and (Path(folder) / name).is_dir()))


def find(folder: str, key: str) -> cache.Entry | None:
    """The entry of a key, its sha256 compared; None without a whole one."""
    if not is_key(key):
        return None
    entry = cache.read(Path(folder) / key)
    return entry if entry and entry.key == key else None


def add(
    folder: str, key: str, provenance: bytes, fetch: Callable[[str, Path], None]
) -> cache.Entry:
    """Bring a wheel in: `fetch(file name, destination)` copies it from its host.

    ValueError when it is not what the provenance says; OSError (disk full) leaves no trace.
    """
    document = json.loads(provenance)
    name = Path(str(document["wheel"]["file"])).name
    # The key is the controller's own request: the host must have built from that, and says so.
    if document.get("key") != key or make(parse(document["inputs"])) != key:
        raise ValueError(f"the provenance is not that of {key}")
    if not WHEEL.fullmatch(name):
        raise ValueError(f"the provenance is not that of {key}")
    root = Path(folder)
    root.mkdir(parents=True, exist_ok=True)
    staging = Path(tempfile.mkdtemp(prefix=f".{key}-", dir=root))
    try:
        staging.chmod(0o755)
        fetch(name, staging / name)
        (staging / cache.PROVENANCE).write_bytes(provenance)
        if cache.read(staging) is None:
            raise ValueError(f"{name} arrived with another sha256 than its provenance says")
        target = root / key
        if target.exists():
            if (there := find(folder, key)) is not None:
                return there
            shutil.rmtree(target)
        try:
            os.replace(staging, target)
        except OSError:
            # Another host's greenlet or another deploy was faster with the same content.
            if (there := find(folder, key)) is not None:
                return there
            raise
    finally:
        shutil.rmtree(staging, ignore_errors=True)
    entry = find(folder, key)
    if entry is None:
        raise ValueError(f"{target} is not readable after it was written")
    return entry
