"""Versions as they compare: 0.5.23 of SGLang, 580.95.05 of a driver, 12.9 of nvcc."""

from __future__ import annotations

import re


def parts(version: str | None) -> tuple[int, ...]:
    """The first three numbers of a version; empty for None and for a text without numbers."""
    return tuple(int(part) for part in re.findall(r"\d+", version or "")[:3])
