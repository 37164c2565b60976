"""Whether an engine has proved that it serves, in the very run that it is in. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from sglangctl.diagnosis.outcomes import PROVEN


def proved_by(engine: Mapping[str, Any], degraded_will_do: bool) -> bool:
    """By the unit, and the watch's last word about this very run of it."""
    last = engine.get("last") or {}
    return (
        (engine.get("unit") or {}).get("ActiveState") == "active"
        and last.get("outcome") in (PROVEN if degraded_will_do else ("ready",))
        and bool(invocation(engine))
        and str(last.get("start")).endswith(f"-{invocation(engine)}")
    )


def invocation(engine: Mapping[str, Any]) -> str:
    return str((engine.get("unit") or {}).get("InvocationID") or "")
