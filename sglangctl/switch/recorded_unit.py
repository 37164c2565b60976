"""What ran before us: a unit that someone else wrote, recorded before it is stopped.

So that going back can be checked: the same unit active, the same ports owned by its cgroup, the
same model ids. Its text may hold secrets: the record lives in state.json (0600) only.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from sglangctl.engine import readiness_facts
from sglangctl.engine.http import Endpoint, ask
from sglangctl.proc import sockets
from sglangctl.systemd import systemctl
from sglangctl.systemd.unit import Unit, show
from sglangctl.util.errors import Failed

SOURCE_LIMIT = 64 * 1024


@dataclass(frozen=True)
class RecordedUnit:
    """One unit as it was found. `models` is None when it did not answer."""

    unit: str
    load_state: str
    active_state: str
    unit_file_state: str
    sources: dict[str, str]
    """Path -> text, of the fragment and the drop-ins."""
    ports: tuple[int, ...]
    """Where it serves: see `lasting`."""
    models: tuple[str, ...] | None


def record(unit: str) -> RecordedUnit | None:
    """The unit's state; None when it does not exist (or there is no systemd). Failed when
    systemd does not answer: what ran could not be brought back."""
    shown = show([unit])
    if shown is None and systemctl.booted():
        raise Failed(
            f"nothing was changed. What {unit} is cannot be recorded: systemctl show does not answer; "
            "when `systemctl status` answers again (a host that swaps: free -m; top), run it again"
        )
    if shown is None or not shown[unit].exists:
        return None
    found = shown[unit]
    members = set(found.pids())
    ports = sorted(
        {
            listener.port
            for listener in sockets.listeners()
            if members and sockets.owners(listener.port, members)
        }
    )
    answers = answering(ports)
    ports = [answers[0]] if answers else lasting(ports)
    return RecordedUnit(
        unit=unit,
        load_state=found["LoadState"],
        active_state=found.active,
        unit_file_state=found["UnitFileState"],
        sources=_sources(found),
        ports=tuple(ports),
        models=answers[1] if answers else None,
    )


def as_document(unit: RecordedUnit) -> dict[str, Any]:
    """For state.json."""
    return asdict(unit)


def answering(ports: Iterable[int]) -> tuple[int, tuple[str, ...]] | None:
    """The first of these ports that lists models, and their ids; None where none does."""
    asked = ((port, served_models(port)) for port in ports)
    return next(((port, ids) for port, ids in asked if ids is not None), None)


def served_models(port: int, timeout_s: float = 3.0) -> tuple[str, ...] | None:
    """The ids that /v1/models lists; None without a usable answer (it may want a key)."""
    return readiness_facts.served_models(ask(Endpoint("127.0.0.1", port), "/v1/models", timeout_s))


def lasting(ports: list[int]) -> list[int]:
    """Those at which a unit listens again after its next start. Its processes may meet at others, which
    are chosen anew each time: vLLM lets the kernel choose, SGLang adds a random number to its own."""
    chosen = sockets.chosen_by_kernel()
    return list(filter(speaks_http, ports)) or [port for port in ports if port not in chosen]


def speaks_http(port: int, timeout_s: float = 3.0) -> bool:
    """Whether it answers at all, be it that it wants a key."""
    return ask(Endpoint("127.0.0.1", port), "/v1/models", timeout_s).status is not None


def _sources(unit: Unit) -> dict[str, str]:
    sources = {}
    for path in [unit["FragmentPath"], *unit["DropInPaths"].split()]:
        if path:
            try:
                text = Path(path).read_bytes()[:SOURCE_LIMIT]
            except OSError:
                continue
            sources[path] = text.decode("utf-8", "backslashreplace")
    return sources
