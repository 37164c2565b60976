"""What a switch ends, counted from the plan of the host. Pure."""

from __future__ import annotations

from roles.remote.snapshot import JSON
from sglangctl.free.text import processes


def ending(plan: JSON, unit: str) -> tuple[list[str], int]:
    """(what is somebody else's, the number of the engine's own processes)."""
    others, own = [], 0
    steps = [*(plan.get("units_to_stop") or []), *(plan.get("containers_to_stop") or [])]
    for one in steps:
        name = str(one.get("unit") or one.get("name") or "a container")
        count = len(one.get("pids") or [])
        if name == unit:
            own += count
        else:
            others.append(f"{name} ({processes(count)})")
    ended = plan.get("processes_to_end") or []
    not_own = sum(1 for one in ended if one.get("class") != "ours")
    own += len(ended) - not_own
    if not_own:
        others.append(f"{processes(not_own)} of others")
    return others, own
