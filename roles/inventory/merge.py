"""Deep merge: an engine's base under a host's overrides."""

from __future__ import annotations

import copy
from typing import Any

from roles.inventory.errors import Path


def deep_merge(base: Any, override: Any) -> Any:
    """Mappings are merged key by key; anything else (lists too) is replaced as a whole.

    Neither argument is modified, and the result shares nothing with them.
    """
    if isinstance(base, dict) and isinstance(override, dict):
        return {
            key: deep_merge(base[key], override[key])
            if key in base and key in override
            else copy.deepcopy(override[key] if key in override else base[key])
            for key in [*base, *(key for key in override if key not in base)]
        }
    return copy.deepcopy(override)


def has_path(document: Any, where: Path) -> bool:
    """Whether the document has this place."""
    for part in where:
        is_key = isinstance(document, dict) and part in document
        is_index = isinstance(document, list) and isinstance(part, int) and part < len(document)
        if not (is_key or is_index):
            return False
        document = document[part]
    return True
