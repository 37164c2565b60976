"""What a run found out about each engine. The deploy file is run once per host: what must exist
once lives in this module."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from pyinfra.api import Host


@dataclass(frozen=True)
class Result:
    """What was found out about one engine. Times in seconds."""

    engine: str
    outcome: str | None
    """Of the host's last word (diagnose.OUTCOMES); None when it could not be found out."""
    exit: int
    """As of `sglangctl verify`: 0 ready, 1 not ready, 2 could not check."""
    cause: str | None = None
    sentence: str = ""
    """What was found, in one sentence."""
    phase: str | None = None
    elapsed_s: float | None = None
    """Since the launch, when this was found."""
    served_after_s: float | None = None
    since: float | None = None
    """When it came to serve: Unix seconds of the host's clock."""
    phases: dict[str, float] = field(default_factory=dict)
    gpu_memory: list[tuple[float, float]] = field(default_factory=list)
    """(seconds since the launch, MiB used on the engine's GPUs together), thinned out."""
    generate: dict[str, Any] | None = None
    checks: list[dict[str, Any]] = field(default_factory=list)
    """Of `sglangctl verify`: {name, passed (None: could not be checked), detail}."""
    evidence: list[str] = field(default_factory=list)
    next_step: str | None = None
    stopped_by: str | None = None
    """Who asked for its end: it did not fail."""
    memory: dict[str, Any] | None = None
    """Of each GPU, as `sglangctl verify --json` has it: {taken, estimated}."""
    history: list[dict[str, Any]] = field(default_factory=list)
    """Loads that were accepted on this host, oldest first (sglangctl/engine/accepted.py)."""
    reachable: bool | None = None
    """From the controller, where the inventory asks for it."""


RESULTS: dict[str, dict[str, Result]] = {}
"""By host's name, then by engine's."""


BACK: dict[str, dict[str, list[str]]] = {}
"""By host's name, then by engine's: what of others serves again after its switch went back."""


SWITCHES: dict[str, dict[str, list[dict[str, Any]]]] = {}
"""By host's name, then by engine's: what its switch's journal said, `t` and `step` or `text` each."""


FALLBACKS: dict[str, dict[str, dict[str, str | None]]] = {}
"""By host's name, then by engine's: the fallback that serves, {name, cause}."""


LISTS: dict[str, dict[str, list[str]]] = {}
"""By host's name, then by what they list: what is too long for the screen."""


def keep(host: Host, what: str, lines: list[str]) -> None:
    """Keep a list for the report."""
    LISTS.setdefault(host.name, {})[what] = lines


def record(host: Host, result: Result) -> None:
    RESULTS.setdefault(host.name, {})[result.engine] = result


def known(host: Host, engine: str) -> Result | None:
    return RESULTS.get(host.name, {}).get(engine)
