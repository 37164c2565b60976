"""What ran before us: a unit that someone else wrote, recorded before it is stopped.

So that going back can be checked: the same unit active, the same ports owned by its cgroup, the
same model ids. Its text may hold secrets: the record lives in state.json (0600) only.
"""

from __future__ import annotations

from collections.abc import Sequence
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
    """Where it serves: see `serves`."""
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
    lasting, models = serves(ports)
    return RecordedUnit(
        unit=unit,
        load_state=found["LoadState"],
        active_state=found.active,
        unit_file_state=found["UnitFileState"],
        sources=_sources(found),
        ports=tuple(lasting),
        models=models,
    )


def as_document(unit: RecordedUnit) -> dict[str, Any]:
    """For state.json."""
    return asdict(unit)


def serves(
    ports: Sequence[int], timeout_s: float = 3.0
) -> tuple[list[int], tuple[str, ...] | None]:
    """The ports at which a unit listens again after its next start (the one that lists models, if one
    does), and the ids that it lists; None without any (it may want a key).

    Its processes may meet at other ports, which are chosen anew each time: vLLM lets the kernel choose,
    SGLang adds a random number to its own. Those speak no HTTP. Each port is asked once, for
    `timeout_s` at most.
    """
    speak = []
    for port in ports:
        answer = ask(Endpoint("127.0.0.1", port), "/v1/models", timeout_s)
        ids = readiness_facts.served_models(answer)
        if ids is not None:
            return [port], ids
        if answer.status is not None:
            speak.append(port)
    chosen = sockets.chosen_by_kernel()
    return speak or [port for port in ports if port not in chosen], None


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
