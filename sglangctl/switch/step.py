"""One step of a stop or a removal, for the code that does it and for the plan that prints it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Callable

Say = Callable[[str], None]


@dataclass(frozen=True)
class Step:
    """`lines`: what a plan says of it, nothing where nothing is to do; `do` does it."""

    lines: Callable[[], Sequence[str]]
    do: Callable[[Say], None]


def quiet(act: Callable[[], object]) -> Step:
    """A step that neither a plan nor who does it prints."""

    def do(say: Say) -> None:
        act()

    return Step(tuple, do)


def lines(steps: Iterable[Step]) -> list[str]:
    """What a plan says of them, each line once. Does nothing."""
    return list(dict.fromkeys(line for step in steps for line in step.lines()))
