"""The key of a built kernel: what decides its bytes, and nothing else. Pure.

The commit names the whole source tree, and the tree pins its third-party sources (by revision
or hash); what replaces one of them is a CMake argument and so in `flags`. Therefore the key can
be known before anything is fetched. The provenance of a build has the tree's id and the
third-party revisions that were really used.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import asdict, dataclass, fields
from typing import Any

LENGTH = 24
"""Hex digits: 96 bits."""


@dataclass(frozen=True)
class Inputs:
    """What a wheel was made from and for."""

    commit: str
    """40 hex digits of the source's git commit."""
    patches: tuple[str, ...]
    """sha256 of each patch, in the order in which they are applied."""
    torch: str
    """`2.14.1+cu130`."""
    cuda: str
    """CUDA's major and minor version, of torch: `13.0`."""
    python: str
    """`cp312`: of the environment that builds; abi3 wheels fit later ones too."""
    machine: str
    """`x86_64` or `aarch64`."""
    arch: str
    """`120a`."""
    flags: tuple[str, ...]
    """CMake arguments, sorted, those of nvcc's threads left out (they change no byte)."""


def make(inputs: Inputs) -> str:
    """The key: the same for the same inputs, on every machine."""
    text = json.dumps(asdict(inputs), sort_keys=True, separators=(",", ":"), ensure_ascii=True)
    return hashlib.sha256(text.encode()).hexdigest()[:LENGTH]


def parse(document: dict[str, Any]) -> Inputs:
    """Inputs from their JSON; ValueError when fields are missing or unknown."""
    known = {item.name for item in fields(Inputs)}
    if set(document) != known:
        raise ValueError(f"the key's inputs are {', '.join(sorted(known ^ set(document)))} off")
    values: dict[str, Any] = {
        name: tuple(map(str, value)) if isinstance(value, (list, tuple)) else str(value)
        for name, value in document.items()
    }
    return Inputs(**values)


def is_key(text: str) -> bool:
    """Whether `text` has the form of a key (it becomes a path and a unit's name)."""
    return len(text) == LENGTH and set(text) <= set("0123456789abcdef")
