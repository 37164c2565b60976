"""What a check found: one fact that is in the way, or that an operator should know."""

from __future__ import annotations

from dataclasses import asdict, dataclass
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

    def to_json(self) -> dict[str, Any]:
        return asdict(self)
