"""Which file of the model is damaged, where the log says only that one is.

safetensors names no file. Headers alone are read, once a start, and not for long: the folder may be
on a network file system that hangs.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable
from pathlib import Path

from sglangctl.diagnosis.finding import FAIL
from sglangctl.weights import check

SAID = ("SafetensorError", "PytorchStreamReader failed", "Bus error", "SIGBUS")
LIMIT_S = 5.0
NAMED = 3
IDS = ("weights-corrupt", "weights-missing")


def damages(text: str, folders: Iterable[str], limit_s: float = LIMIT_S) -> list[tuple[str, str]]:
    """(folder, what is wrong with a file in it), where `text` (a piece of the log) says that a file is
    damaged; nothing where the folders cannot be read in time."""
    if not any(said in text for said in SAID):
        return []
    found: list[tuple[str, str]] = []

    def look() -> None:
        for folder in folders:
            model = check.check(Path(folder), tokenizer=False)
            wrong = [one for one in model.findings if one.level == FAIL and one.id in IDS]
            found.extend((folder, one.seen) for one in wrong[:NAMED])

    looking = threading.Thread(target=look, daemon=True)
    looking.start()
    looking.join(limit_s)
    return [] if looking.is_alive() else found
