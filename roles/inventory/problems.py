"""Collecting the mistakes of one host, each at the place that a person wrote."""

from __future__ import annotations

from roles.inventory import schema
from roles.inventory.document import Document
from roles.inventory.errors import Mistake, Need, Path, Problem, dotted


class Problems:
    """Mistakes with the file, the line and the place; in the order of the file, none twice."""

    def __init__(self, document: Document) -> None:
        self.document = document
        self.found: list[Problem] = []

    @property
    def mistakes(self) -> list[Mistake]:
        ordered = sorted(self.found, key=lambda item: (item.line or 0, dotted(item.where)))
        return list(dict.fromkeys(Mistake(str(item), item.need) for item in ordered))

    def add(
        self, where: Path, found: str, allowed: str, meant: str | None, need: Need | None = None
    ) -> None:
        """`need`: what needs this to be right, where the place does not say it."""
        line = self.document.line(where)
        need = need_of(where) if need is None else need
        self.found.append(Problem(self.document.file, line, where, found, allowed, meant, need))

    def validate(self, definition: str, value: object, where: Path) -> None:
        """Add what the schema finds in a value that stands at `where`."""
        schema.validate(
            definition,
            value,
            lambda inner, *rest: self.add((*where, *inner), *rest),
        )


def need_of(where: Path) -> Need:
    """What needs a place of the document to be right.

    A key that is not known stands for nothing: whatever was meant by it, the host can be
    reached without it or cannot.
    """
    if where[:1] != ("hosts",):
        return Need.ENGINES
    if len(where) <= 2 or where[2] in ("ssh", "sudo") or where[2:] == ("engines",):
        return Need.HOST
    return Need.ENGINES
