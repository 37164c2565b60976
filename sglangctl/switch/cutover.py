"""How a switch changes over: the new engine waits at its gate while the old one serves, or it is
started when the old one is down. What speaks for which. Pure, but for the look at a venv.

SGLang 0.5.23 has the gate: everything is done but for what takes memory (imports, arguments,
tokenizer, processes, NCCL), then it waits until it is let in.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from sglangctl.util.values import mapping, text

AUTO, GATED, PLAIN = "auto", "gated", "plain"
MODULE = "lib/python3*/site-packages/sglang/srt/distributed/gated_launch.py"
"""Of a venv whose SGLang has the gate."""
GPU_MIB = 2560
"""Of each GPU that has to be free for an engine at its gate: 0.6 to 1.6 GiB were measured."""
HOST_MIB, RANK_MIB = 2048, 2048
"""Of memory that has to be available: for the launcher and what it starts, and for each rank. Three
processes of 660 MiB were measured with one rank."""

CROWDED = frozenset(["gpu-out-of-memory", "host-out-of-memory", "port-taken", "too-many-tasks"])
"""Causes of a start that fails at its gate because of what serves beside it: `auto` then stops that
first."""


@dataclass(frozen=True)
class Cutover:
    """Which one, and why."""

    kind: str
    reason: str
    stops: bool = True
    """Something runs that it stops: who asks for a gate is refused where there is none."""
    moves: bool = False
    """It moves the engine to a slot on the way, so that the next switch can be gated."""

    @property
    def gated(self) -> bool:
        return self.kind == GATED

    def refused(self, wanted: str) -> bool:
        """Whether a switch is not what the inventory asks for, `wanted`."""
        return wanted == GATED and self.stops and not self.gated

    @classmethod
    def from_json(cls, document: Any) -> Cutover | None:
        """From the probe's document, whatever it holds; None where it says nothing of it."""
        found = mapping(document)
        kind, reason = text(found.get("kind")), text(found.get("reason"))
        if kind not in (GATED, PLAIN) or not reason:
            return None
        return cls(kind, reason, found.get("stops") is not False, found.get("moves") is True)

    def to_json(self) -> Mapping[str, Any]:
        return asdict(self)

    def __str__(self) -> str:
        return f"cutover: {self.kind}: {self.reason}"


@dataclass(frozen=True)
class Facts:
    """What a host says about it."""

    serves: bool
    """Something runs that the switch would stop."""
    gate: bool | None
    """The engine in the release's venv has one; None: the venv is not there yet."""
    ranks: int = 1
    free_mib: Mapping[int, int] | None = None
    """Of each of its GPUs, free beside what runs; None: it cannot be told."""
    available_mib: int | None = None
    """MemAvailable; None: it cannot be told."""
    hindered: Sequence[str] = ()
    """What else speaks against it on this host."""
    single: str = ""
    """The unit of the engine's own name, where the engine runs as that and is in no slot."""


def decide(wanted: str, facts: Facts) -> Cutover:
    """What a switch does, and why."""
    if wanted == PLAIN:
        return Cutover(PLAIN, "the inventory says so")
    against = _against(facts)
    if against is not None:
        return Cutover(PLAIN, against, stops=facts.serves)
    if facts.single:
        # Only once it is down: see state/slots.py.
        said = (
            f"{facts.single} is in no slot yet: this switch moves it to one, the next can be gated"
        )
        return Cutover(PLAIN, said, moves=True)
    if facts.gate is None:
        return Cutover(GATED, "decided when the venv is there (expected: its SGLang has a gate)")
    return Cutover(GATED, _numbers(facts))


def _against(facts: Facts) -> str | None:
    """Why it cannot be gated."""
    if not facts.serves:
        return "nothing runs that it would take over from"
    if facts.gate is False:
        return "its SGLang has no gate (0.5.23 has one)"
    if facts.hindered:
        return facts.hindered[0]
    if facts.free_mib is None:
        return "the free memory of its GPUs cannot be told"
    low = {gpu: mib for gpu, mib in facts.free_mib.items() if mib < GPU_MIB}
    if low:
        gpu, mib = next(iter(sorted(low.items())))
        return f"GPU {gpu} has {mib:,} MiB free, and an engine at its gate may take {GPU_MIB:,}"
    if facts.available_mib is None:
        return "the available memory of this host cannot be told"
    if facts.available_mib < wanted_mib(facts.ranks):
        return (
            f"{facts.available_mib:,} MiB of memory are available, and an engine at its gate may take "
            f"{wanted_mib(facts.ranks):,}"
        )
    return None


def _numbers(facts: Facts) -> str:
    parts = ["it starts beside what serves and waits at its gate"]
    if facts.free_mib:
        gpu, mib = min(facts.free_mib.items(), key=lambda item: item[1])
        parts.append(f"GPU {gpu} has {mib:,} MiB free ({GPU_MIB:,} wanted)")
    parts.append(
        f"{facts.available_mib:,} MiB of memory available ({wanted_mib(facts.ranks):,} wanted)"
    )
    return "; ".join(parts)


def wanted_mib(ranks: int) -> int:
    """Of memory, for an engine at its gate."""
    return HOST_MIB + ranks * RANK_MIB


def has_gate(venv: Path) -> bool | None:
    """Whether the SGLang in a venv has the gate; None: there is no such venv yet."""
    if not (venv / "bin").is_dir():
        return None
    return next(venv.glob(MODULE), None) is not None
