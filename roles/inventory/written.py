"""Numbers that remember how they were written.

An environment variable is a text: `FLASHINFER_CUDA_ARCH_LIST: 12.0` means 12.0, not 12.
"""

from __future__ import annotations


class WrittenInt(int):
    """A whole number, and its text in the inventory."""

    text: str


class WrittenFloat(float):
    """Any other number, and its text in the inventory."""

    text: str


def written(value: int | float, text: str) -> int | float:
    """The number with its text; true and false as they are."""
    if isinstance(value, bool):
        return value
    made = WrittenInt(value) if isinstance(value, int) else WrittenFloat(value)
    made.text = text
    return made


def text_of(value: str | int | float) -> str:
    """A value of an environment variable as a text: as it was written."""
    return value.text if isinstance(value, (WrittenInt, WrittenFloat)) else str(value)
