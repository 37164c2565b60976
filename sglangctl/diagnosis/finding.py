"""What a check found: one fact that is in the way, or that an operator should know."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any

FAIL, WARN, INFO = "fail", "warn", "info"


@dataclass(frozen=True)
class Finding:
    """One of a check's findings; `id` names its kind for good (an inventory may ignore it)."""

    id: str
    level: str
    """FAIL: what was checked cannot work. WARN: it may not. INFO: nothing to do."""
    seen: str
    """One sentence without a full stop, safe for a terminal."""
    fix: str = ""
    """The next step: a command, or a line of the inventory."""
    needed: str = ""
    """What would be right, where `seen` does not say so already."""
    source: str = ""
    """Who asks for it: a document, a program's own check, a measurement."""

    @classmethod
    def from_json(cls, document: Mapping[str, Any]) -> Finding:
        """The finding of a document; what a newer program says beyond it is left out."""
        return cls(**{item.name: str(document.get(item.name, "")) for item in fields(cls)})

    def to_json(self) -> dict[str, Any]:
        return asdict(self)
