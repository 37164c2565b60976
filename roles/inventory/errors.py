"""The errors of an inventory, each as one line for its author."""

from __future__ import annotations

import difflib
import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import Any

from sglangctl.masking.addresses import mask_addresses

Path = tuple[str | int, ...]
"""A place in a YAML document: keys and list indices from the top."""

SHOWN = 100
"""Characters of a found value that an error shows."""


class InventoryError(Exception):
    """A file that cannot be used for any host; the text is one line for the operator."""


class Need(IntEnum):
    """What a deploy needs of a host's part of the inventory; each needs the ones before, too.

    A mistake stops a deploy that needs what it is in, and no other: whoever stops an engine in
    the middle of the night needs neither its api key nor its flags.
    """

    HOST = 0
    """The way to the host, and its engines' names."""
    ENGINES = 1
    """What its engines are."""
    FILES = 2
    """The secrets and files on the controller that the engines name."""


@dataclass(frozen=True)
class Mistake:
    """One line for the person who wrote it, and what needs it to be right."""

    text: str
    need: Need

    def to_json(self) -> str:
        """For `pyinfra inventory.py debug-inventory`."""
        return self.text


@dataclass(frozen=True)
class Problem:
    """One mistake: where it is, what was found, what is allowed, and what was perhaps meant."""

    file: str
    line: int | None
    where: Path
    found: str
    allowed: str
    meant: str | None = None
    need: Need = Need.ENGINES

    def __str__(self) -> str:
        place = self.file if self.line is None else f"{self.file}:{self.line}"
        text = f"{place}: {dotted(self.where)}: found {self.found}; allowed: {self.allowed}"
        return f'{text}; did you mean "{self.meant}"?' if self.meant else text


def dotted(where: Sequence[str | int]) -> str:
    """`hosts.gpu1.engines.kimi.gpus[0]`; keys with other characters are quoted."""
    text = ""
    for part in where:
        if isinstance(part, int):
            text += f"[{part}]"
        else:
            plain = part.replace("-", "").replace("_", "").isalnum() and part.isascii()
            text += ("." if text else "") + (part if plain else json.dumps(part))
    return text or "the document"


def shown(value: Any) -> str:
    """A found value, short and on one line, escaped for a terminal."""
    if isinstance(value, dict):
        return "a mapping" if value else "an empty mapping"
    if isinstance(value, list) and any(isinstance(item, (dict, list)) for item in value):
        return "a list of lists or mappings"
    text = mask_addresses(json.dumps(value, default=str))
    return text if len(text) <= SHOWN else text[: SHOWN - 3] + "..."


def closest(word: Any, known: Iterable[str]) -> str | None:
    """The known word that was probably meant, or None.

    Case and the choice between `-` and `_` do not count, so that tp_size finds tp-size.
    """
    if not isinstance(word, str):
        return None
    # Several spellings may fold to the same one; any of them is a good answer.
    folded = {_fold(item): item for item in known}
    near = difflib.get_close_matches(_fold(word), folded, n=1, cutoff=0.7)
    return folded[near[0]] if near else None


def _fold(word: str) -> str:
    return word.lower().replace("-", "_")
