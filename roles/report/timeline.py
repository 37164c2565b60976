"""A switch and the start that it began, as lanes of a picture: pure numbers, seconds since the first
of them. The page (page.py) draws them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from roles.report.choice import START
from sglangctl.util.values import mapping, mappings, number, text

GATING, STARTING = "gating", "starting"
"""Each begins the new engine's start: the first one beside what serves."""
BACK = "going back"


@dataclass(frozen=True)
class Bar:
    """From `begin` to `end`, in seconds."""

    name: str
    begin: float
    end: float

    @property
    def seconds(self) -> float:
        return self.end - self.begin


@dataclass(frozen=True)
class Timeline:
    """Lanes of one engine; an empty one was not seen."""

    steps: tuple[Bar, ...]
    """Of the switch."""
    phases: tuple[Bar, ...]
    """Of the new engine's start."""
    dark: Bar | None
    """Without service: from the first stop to the first answer of the new engine, or, where it went
    back, to the end of the switch. None where nothing served before, or nothing was stopped."""
    memory: tuple[tuple[float, float], ...]
    """(second, MiB) of all the engine's GPUs together."""
    end: float

    @property
    def seen(self) -> bool:
        return self.end > 0


def timeline(
    events: Sequence[Mapping[str, Any]],
    result: Mapping[str, Any],
    choice: Mapping[str, Any],
) -> Timeline:
    """From the events of a switch (`t` and `step` or `text`), an engine's Result and its Choice, as the
    report has them. Whatever they hold: they come from a host."""
    steps = steps_of(events)
    launch = next((bar.begin for bar in steps if bar.name in (GATING, STARTING)), 0.0)
    phases, at = [], launch
    for name, taken in mapping(result.get("phases")).items():
        seconds = max(0.0, number(taken) or 0.0)
        phases.append(Bar(str(name), at, at + seconds))
        at += seconds
    memory = tuple(
        (launch + t, used)
        for one in result.get("gpu_memory") or ()
        if isinstance(one, (list, tuple)) and len(one) == 2
        if (t := number(one[0])) is not None and (used := number(one[1])) is not None
    )
    ends = [bar.end for bar in (*steps, *phases)]
    ends += [t for t, _ in memory]
    return Timeline(
        steps=tuple(steps),
        phases=tuple(phases),
        dark=dark_of(steps, result, choice, launch),
        memory=memory,
        end=max(ends, default=0.0),
    )


def steps_of(events: Sequence[Mapping[str, Any]]) -> list[Bar]:
    """Each step until the next one begins; the last until the last event."""
    begun: list[tuple[float, str]] = []
    last = 0.0
    for event in mappings(list(events)):
        t = number(event.get("t"))
        if t is None or t < last:
            continue
        last = t
        step = text(event.get("step"))
        if step is None and (text(event.get("text")) or "").startswith(f"{BACK}:"):
            step = BACK
        if step is not None:
            begun.append((t, step))
    ends = [*(t for t, _ in begun[1:]), last]
    return [Bar(name, t, end) for (t, name), end in zip(begun, ends)]


def dark_of(
    steps: Sequence[Bar],
    result: Mapping[str, Any],
    choice: Mapping[str, Any],
    launch: float,
) -> Bar | None:
    stops = [bar for bar in steps if bar.name != GATING]
    if not stops or choice.get("action") == START:
        return None
    served = number(result.get("served_after_s"))
    back = any(bar.name == BACK for bar in steps)
    end = steps[-1].end if served is None or back else launch + served
    begin = stops[0].begin
    return Bar("without service", begin, end) if end > begin else None
