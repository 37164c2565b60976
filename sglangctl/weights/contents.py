"""What lies in a folder of weights: its files by kind, and which of them the engine will read."""

from __future__ import annotations

import os
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

from sglangctl.util import lazy_re

SERIES = lazy_re.compile(r"(?P<stem>.+)-(?P<number>\d{5})-of-(?P<total>\d{5})(?P<suffix>\.\w+)")
"""model-00003-of-00064.safetensors, as transformers names the parts of one model."""
UNFINISHED = (".incomplete", ".aria2", ".part", ".partial", ".crdownload")
"""What huggingface_hub, aria2, curl, rsync and browsers put behind the name of a file that they
have not got whole."""
OTHER_FORMATS = (".bin", ".pt", ".pth", ".gguf")
INDEX = "model.safetensors.index.json"


@dataclass(frozen=True)
class Contents:
    """The names in one folder, sorted."""

    folder: Path
    names: tuple[str, ...]

    @property
    def safetensors(self) -> list[str]:
        return [name for name in self.names if name.endswith(".safetensors")]

    @property
    def other_formats(self) -> list[str]:
        return [name for name in self.names if name.endswith(OTHER_FORMATS)]

    @property
    def unfinished(self) -> list[str]:
        """Files that say by their name that they, or the file beside them, are not whole."""
        return [name for name in self.names if name.endswith(UNFINISHED)]

    @property
    def index(self) -> str | None:
        """The index's name; None where the model is in one file, or nobody wrote one."""
        if INDEX in self.names:
            return INDEX
        # A variant (model.fp16.safetensors.index.json): the engine takes the only one there is.
        found = [name for name in self.names if name.endswith(".safetensors.index.json")]
        return found[0] if len(found) == 1 else None

    def missing_parts(self, most: int) -> tuple[list[str], int]:
        """The first `most` names that the numbering of the parts promises and that are not there, and
        how many there are: one name can promise 99,999, and a folder can have many such names."""
        series: dict[tuple[str, str, str], set[int]] = {}
        for name in self.safetensors:
            match = SERIES.fullmatch(name)
            if match:
                key = match["stem"], match["total"], match["suffix"]
                series.setdefault(key, set()).add(int(match["number"]))
        names: list[str] = []
        count = 0
        for (stem, total, suffix), present in series.items():
            absent = (number for number in range(1, int(total) + 1) if number not in present)
            names += [
                f"{stem}-{number:05}-of-{total}{suffix}"
                for number in islice(absent, most - len(names))
            ]
            count += int(total) - sum(1 for number in present if 1 <= number <= int(total))
        return names, count


def look(folder: Path) -> Contents:
    """The folder's names; OSError where it cannot be listed."""
    return Contents(folder, tuple(sorted(os.listdir(folder))))
