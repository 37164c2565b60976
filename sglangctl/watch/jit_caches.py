"""Compile caches that grow: what is compiled inside of the engine's own processes has no other sign."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from sglangctl.proc.folders import folders_below
from sglangctl.proc.mounts import Mounts

MOST_FILES = 50_000
"""That one look counts: a cache is the engine's own, and as large as it likes."""


def places(env: Mapping[str, str]) -> dict[str, str]:
    """Name -> folder of the caches, by the environment that the engine was started with."""
    found: dict[str, str] = {}
    for name, variable, below in (
        ("Triton's cache", "TRITON_CACHE_DIR", ""),
        ("Inductor's cache", "TORCHINDUCTOR_CACHE_DIR", ""),
        ("SGLang's cache", "SGLANG_CACHE_DIR", ""),
        ("FlashInfer's cache", "FLASHINFER_WORKSPACE_BASE", ".cache/flashinfer"),
        ("DeepGEMM's cache", "SGLANG_DG_CACHE_DIR", ""),
        ("tvm-ffi's cache", "XDG_CACHE_HOME", "tvm-ffi"),
    ):
        if env.get(variable, "").startswith("/"):
            found[name] = os.path.join(env[variable], below)
    return found


class JitCaches:
    """Which caches have grown since the look before."""

    def __init__(self, env: Mapping[str, str]) -> None:
        self._places = places(env)
        self._before: dict[str, tuple[int, int]] = {}

    def grown(self) -> tuple[str, ...]:
        """Their names; at the first look of each none. Folders of other machines are left out."""
        mounts = Mounts()
        names = []
        for name, folder in self._places.items():
            place = mounts.place(folder)
            if not place.local:
                continue
            size = _size(Path(place.path), mounts)
            before = self._before.get(name)
            self._before[name] = size
            if before is not None and size > before:
                names.append(name)
        return tuple(names)


def _size(folder: Path, mounts: Mounts) -> tuple[int, int]:
    """Files and their bytes; (0, 0) without the folder."""
    files = size = 0
    for below in folders_below(folder, mounts.kinds):
        try:
            with os.scandir(below) as entries:
                for entry in entries:
                    if entry.is_file(follow_symlinks=False):
                        files += 1
                        size += entry.stat(follow_symlinks=False).st_size
        except OSError:
            continue  # a compiler's folder that is gone again
        if files >= MOST_FILES:
            break
    return files, size
