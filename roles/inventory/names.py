"""Lists of names as text."""

from __future__ import annotations


def names(text: str) -> frozenset[str]:
    """The names in a text, which white space separates."""
    return frozenset(text.split())
