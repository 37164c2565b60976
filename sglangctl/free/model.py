"""What freeing an engine's GPUs is about: the situation, the plan, the result."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any

from sglangctl.gpu import gpus
from sglangctl.holders.survey import Holder
from sglangctl.state.config import EngineConfig, HostConfig, Limits
from sglangctl.systemd.containers import Container
from sglangctl.systemd.unit import Unit


@dataclass(frozen=True)
class Situation:
    """All facts that a plan is made of; `holders` has everything of interest, whether it uses a
    GPU or not (members of units, orphans, owners of the port), classified for `engine`."""

    engine: EngineConfig
    host: HostConfig
    siblings: tuple[EngineConfig, ...]
    holders: tuple[Holder, ...]
    reading: gpus.Reading
    units: Mapping[str, Unit] | None
    """By the name that was asked for; None without systemd."""
    members: Mapping[str, tuple[int, ...]]
    """Unit -> the processes of its cgroup."""
    containers: Mapping[str, Container]
    """By id, of those in which a holder is."""
    unreadable: int = 0
    unfinished: tuple[int, ...] = ()
    pidfds: bool = True
    unseen: tuple[str, ...] = ()
    """Units of which systemd, the init of this machine, does not say what they are."""
    waiting: str | None = None
    """The unit of an engine that waits at its gate: it is to stay, and its memory is no one's in the
    way."""
    on_the_host: bool = True
    """We are in the machine's own PID namespace: what cannot be seen from here is not there."""


@dataclass(frozen=True)
class UnitStep:
    """A unit to stop. `disable`: it is enabled now, and is to stay down after a reboot too."""

    unit: str
    class_: str
    reason: str
    active_state: str
    enabled: str
    """systemd's UnitFileState, as it was found: what going back has to restore."""
    disable: bool
    pids: tuple[int, ...]
    triggered_by: tuple[str, ...]
    restart: str
    fragment: str
    starting: bool = False
    """It has not served yet: it has no request to finish."""


@dataclass(frozen=True)
class ContainerStep:
    """A container to stop through its engine."""

    id: str
    name: str
    command: str
    """docker, podman or nerdctl."""
    restart: str
    pids: tuple[int, ...]


UNSEEN = "unseen"
"""The class of a refusal that is about what cannot be looked at; `allow` is the next step."""
NOBODY = "nobody"
"""The class of a refusal that is about memory of no process that can be seen from here; likewise."""


@dataclass(frozen=True)
class Refusal:
    """Who is in the way and may not be ended, why, and what would allow it."""

    class_: str
    who: str
    reason: str
    allow: str
    pid: int | None = None
    unit: str | None = None
    """The system manager's: what `systemctl stop` would stop."""
    gpus: tuple[int, ...] = ()


@dataclass(frozen=True)
class Plan:
    """What freeing would do, in this order. With `refused`, it would do nothing at all."""

    engine: str
    policy: str
    stop: bool
    targets: tuple[int, ...] | None
    """The GPUs to free; None: all of the host."""
    units_to_stop: tuple[UnitStep, ...] = ()
    containers_to_stop: tuple[ContainerStep, ...] = ()
    processes_to_end: tuple[Holder, ...] = ()
    refused: tuple[Refusal, ...] = ()
    kept: tuple[Holder, ...] = ()
    """Of class protected or sibling on these GPUs: not in the way, never ended."""
    notes: tuple[str, ...] = ()
    port: int = 0
    limits: Limits = field(default_factory=Limits)
    situation: Situation | None = None
    """What it was made of; not part of the document."""

    @property
    def empty(self) -> bool:
        """Nothing to stop, to end or to refuse."""
        return not (
            self.units_to_stop or self.containers_to_stop or self.processes_to_end or self.refused
        )

    @property
    def blind(self) -> bool:
        """Refused because what it is about cannot be looked at."""
        return any(refusal.class_ == UNSEEN for refusal in self.refused)

    def uses(self, gpu: int) -> bool:
        return self.targets is None or gpu in self.targets


@dataclass(frozen=True)
class Leftover:
    """A thing that a dead engine left: `port`, `shm` or `jit-lock`."""

    kind: str
    what: str
    reason: str
    """Why it was removed, or why not."""
    removed: bool = False


@dataclass(frozen=True)
class Ended:
    """A process that is gone now, and by what."""

    pid: int
    title: str
    how: str
    """`unit` (its unit was stopped), `container`, `SIGTERM`, `SIGKILL`."""


@dataclass(frozen=True)
class FreeResult:
    """How it ended. `status`: 0 free, 1 not free, 3 refused (nothing was changed)."""

    status: int
    sentence: str
    verdict: str
    """`free`, `refused`, or what needs a person: see verdicts.py."""
    seconds: float = 0.0
    ended: tuple[Ended, ...] = ()
    units_stopped: tuple[str, ...] = ()
    leftovers: tuple[Leftover, ...] = ()

    @property
    def ok(self) -> bool:
        return self.status == 0

    def to_json(self) -> dict[str, Any]:
        return {
            "status": self.status,
            "sentence": self.sentence,
            "verdict": self.verdict,
            "seconds": round(self.seconds, 3),
            "ended": [document(one) for one in self.ended],
            "units_stopped": self.units_stopped,
            "leftovers": [document(one) for one in self.leftovers],
        }


def document(thing: Any) -> dict[str, Any]:
    """A flat dataclass as a JSON object; `class_` becomes `class`."""
    return {item.name.rstrip("_"): getattr(thing, item.name) for item in fields(thing)}


def is_a_service(unit: str) -> bool:
    """A service that one would stop, and not a login or a user's whole manager."""
    return unit.endswith(".service") and not unit.startswith("user@")
