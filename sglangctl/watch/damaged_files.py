"""Which file of the model is damaged, where the log says only that one is.

safetensors names no file. Headers alone are read, once a start, not for long (the folder may be on a
network file system that hangs), and with the rights of the engine's user: a file of the folder may be
a link to one of root's, and what is wrong with that shows its first bytes.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from sglangctl.diagnosis.finding import FAIL
from sglangctl.proc import as_user
from sglangctl.weights import check

SAID = ("SafetensorError", "PytorchStreamReader failed", "Bus error", "SIGBUS")
LIMIT_S = 5.0
NAMED = 3
IDS = ("weights-corrupt", "weights-missing")


class Damages:
    """Looks into the folders of one start's models once, as `user`: every rank logs the same
    error."""

    def __init__(self, folders: Iterable[str], user: str, limit_s: float = LIMIT_S) -> None:
        self._folders, self._user, self._limit_s = tuple(folders), user, limit_s
        self._looked = False

    def named(self, text: str) -> list[tuple[str, str]]:
        """(folder, what is wrong with a file in it), where `text` (a piece of the log) is the first to
        say that a file is damaged; nothing where the folders cannot be read in time."""
        if self._looked or not any(said in text for said in SAID):
            return []
        self._looked = True
        try:
            found = as_user.ask(self._user, lambda: _look(self._folders), self._limit_s)
        except (PermissionError, KeyError, as_user.NoAnswer):
            return []
        return [(folder, wrong) for folder, wrong in found]


def _look(folders: Iterable[str]) -> list[tuple[str, str]]:
    found: list[tuple[str, str]] = []
    for folder in folders:
        model = check.check(Path(folder), tokenizer=False)
        wrong = [one for one in model.findings if one.level == FAIL and one.id in IDS]
        found.extend((folder, one.seen) for one in wrong[:NAMED])
    return found
