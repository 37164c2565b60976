"""What ran before a switch, and what a switch that fails goes back to: as one line. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from sglangctl.free import notes
from sglangctl.free.model import Plan
from sglangctl.state.config import Acceptance
from sglangctl.state.release import State
from sglangctl.util.terminal import escaped
from sglangctl.util.values import mapping, text


@dataclass(frozen=True)
class Before:
    """What runs when a switch begins."""

    rollback: bool
    release: str | None = None
    """Our own release; None where none runs."""
    units: tuple[str, ...] = ()
    """Units of others that the switch stops."""
    containers: tuple[str, ...] = ()
    by_hand: tuple[int, ...] = ()
    """Processes to end that nothing can start again."""
    unrecorded: bool = False
    """Our own unit runs, and nothing says with which release: our folder was deleted."""

    @classmethod
    def from_json(cls, document: Any) -> Before:
        """From the probe's document, whatever it holds."""
        found = mapping(document)

        def names(key: str) -> tuple[str, ...]:
            listed = found.get(key)
            return tuple(filter(None, map(text, listed if isinstance(listed, list) else [])))

        pids = found.get("by_hand")
        return cls(
            rollback=found.get("rollback") is not False,
            release=text(found.get("release")),
            units=names("units"),
            containers=names("containers"),
            by_hand=tuple(one for one in pids if isinstance(one, int))
            if isinstance(pids, list)
            else (),
            unrecorded=found.get("unrecorded") is True,
        )

    def to_json(self) -> Mapping[str, Any]:
        return {key: list(v) if isinstance(v, tuple) else v for key, v in asdict(self).items()}


def of(state: State, plan: Plan, rollback: bool) -> Before:
    """From what a switch has recorded, or would."""
    return Before(
        rollback,
        state.came_from if state.was_running else None,
        state.stopped,
        tuple(box["name"] for box in state.containers),
        tuple(notes.by_hand(plan, plan.situation)) if plan.situation else (),
        unrecorded=state.was_running and state.came_from is None,
    )


def lines(before: Before, name: str, to: str, fallbacks: Sequence[str]) -> list[str]:
    """What is tried if release `to` of engine `name` does not become ready, and what the host goes
    back to."""
    tried = f"if {name} fails for a cause that they can help: fallback {', then '.join(fallbacks)}"
    return [*([escaped(tried)] if fallbacks else []), line(before, name, to)]


def line(before: Before, name: str, to: str) -> str:
    """What the host goes back to if release `to` of engine `name` does not become ready."""
    return escaped(f"if {name} does not become ready: {_side(before, to)}")


def _side(before: Before, to: str) -> str:
    if not before.rollback:
        return "nothing is started again (`rollback: false`)"
    sides = [f"release {before.release[:12]}"] if before.release not in (None, to) else []
    sides += [*before.units, *(f"container {one}" for one in before.containers)]
    pids = ", ".join(map(str, before.by_hand))
    if sides:
        lost = f", without what was started by hand ({pids})" if pids else ""
        return f"back to {', '.join(sides)}{lost}"
    return f"nothing to go back to, {nothing(before, to)}"


def nothing(before: Before, to: str) -> str:
    """Why there is nothing to go back to."""
    if before.by_hand:
        pids = ", ".join(map(str, before.by_hand))
        return f"what ran before was started by hand, without a unit or a container ({pids})"
    if before.release == to:
        return f"it is the release that ran before ({to[:12]})"
    if before.unrecorded:
        return "it runs, and its release is not recorded any more"
    return "nothing ran before it"


def measured(wanted: Acceptance | None) -> list[str]:
    """For a plan, what is done to the engine that is replaced; none where nothing is."""
    if wanted is None or not wanted.replaced:
        return []
    return [
        "acceptance: what is replaced and serves the same model is measured and asked first, for at "
        f"most {2 * wanted.limit_s:g} s; it serves meanwhile"
    ]
