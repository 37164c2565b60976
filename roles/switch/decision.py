"""Whether an engine has to be switched, and why. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Decision:
    """Empty `reasons`: the live release is the wanted one and it runs."""

    reasons: tuple[str, ...]

    @property
    def needed(self) -> bool:
        return bool(self.reasons)

    def __str__(self) -> str:
        return "; ".join(self.reasons)


def decide(
    engine: Mapping[str, Any],
    wanted: str,
    changed_files: Sequence[str],
    unit_differs: bool,
) -> Decision:
    """Compare what the probe says of one engine with the wanted release.

    + engine: `releases` {current, ...}, `state` (state.json or None), `unit` (systemd's properties)
    + wanted: the digest of the release that the inventory describes
    + changed_files: names of the release's files that differ from the live ones
    + unit_differs: the unit in /etc/systemd/system is not the release's
    """
    live = (engine.get("releases") or {}).get("current")
    unit = engine.get("unit") or {}
    state = engine.get("state") or {}
    reasons = []
    if live is None:
        reasons.append("no release is live yet")
    elif live != wanted:
        reasons.append(f"{', '.join(changed_files) or 'the release'} changed")
    elif unit_differs:
        reasons.append("the unit in /etc/systemd/system was edited or is missing")
    if state.get("phase") == "switching":
        reasons.append("an earlier switch did not come to its end")
    if live == wanted and not unit_differs:
        active = unit.get("ActiveState")
        if active not in ("active", "activating", "reloading"):
            reasons.append(f"the unit is {active or 'unknown'}")
        if unit.get("UnitFileState") not in ("enabled", "enabled-runtime"):
            reasons.append("the unit does not start at boot")
        if unit.get("NeedDaemonReload") == "yes":
            reasons.append("systemd has not read the unit since it changed")
    return Decision(tuple(reasons))
