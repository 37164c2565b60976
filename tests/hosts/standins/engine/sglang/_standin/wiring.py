"""How the engine's processes are connected; picklable, for multiprocessing's spawn.

launcher -> rank 0 -> detokenizer -> launcher is the way of a request; rank 0 -> launcher
answers control questions (/server_info) without the detokenizer. Rank 0 and each other rank
meet at every step, as collectives make real ranks do.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from multiprocessing.connection import Connection
from typing import Any

from sglang._standin.flags import ServerArgs


@dataclass
class Rank:
    """What one scheduler process is given."""

    number: int
    size: int
    args: ServerArgs
    config: dict[str, Any]
    parent: int
    gpu: int | None
    """Device index; None without GPUs (`device: cpu`), -1 when the host has too few."""
    ready: Connection
    requests: Connection | None = None
    control: Connection | None = None
    tokens: Connection | None = None
    leader: Connection | None = None
    followers: list[Connection] = field(default_factory=list)

    @property
    def label(self) -> str:
        """The log prefix of this rank: empty with one rank."""
        return f" TP{self.number}" if self.size > 1 else ""

    @property
    def title(self) -> str:
        return f"sglang::scheduler_TP{self.number}" if self.size > 1 else "sglang::scheduler"


@dataclass
class Detokenizer:
    """What the detokenizer process is given."""

    parent: int
    gpus: list[int]
    tokens: Connection
    texts: Connection
