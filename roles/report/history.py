"""Accepted speeds over time: a table and a small chart for the page of a report. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sglangctl.util.values import mappings, number, text, whole

MOST = 20
"""The newest ones."""
WIDTH, LANE, LABEL, ROOM = 960.0, 60.0, 130.0, 16.0
"""Of the chart, in its own units: all of it, one lane, the lanes' names, above and at the sides."""


@dataclass(frozen=True)
class Measurement:
    """One measured load. `speeds`: concurrency -> tokens/s, seconds until the first token at the median,
    seconds a token at the median; None: not known."""

    time: str
    version: str
    release: str
    speeds: Mapping[int, tuple[float | None, float | None, float | None]]
    kept: bool = True
    """It is accepted."""


def measurements(kept: object, now: Mapping[str, Any], time: object) -> list[Measurement]:
    """Of `history` in a result, oldest first, and that of this run (`now`: an `acceptance` of a generate
    event) where it was not kept."""
    found = [_of(one) for one in mappings(kept)[-MOST:]]
    if now.get("speeds") and now.get("kept") is not True:
        found.append(_of({**now, "time": time}, kept=False))
    return [one for one in found if one.speeds]


def chart(found: Sequence[Measurement]) -> dict[str, Any] | None:
    """Lines of tokens/s, a lane for each concurrency; None of fewer than two points."""
    counts = sorted({count for one in found for count in one.speeds})
    step = (WIDTH - LABEL - 2 * ROOM) / max(1, len(found) - 1)
    lanes: list[dict[str, Any]] = []
    for count in counts:
        values = [one.speeds.get(count, (None,))[0] for one in found]
        known = [(place, value) for place, value in enumerate(values) if value is not None]
        if len(known) < 2:
            continue
        most = max(value for _, value in known) or 1.0
        top = LANE * len(lanes)
        points = [
            {
                "x": round(LABEL + ROOM + place * step, 1),
                "y": round(top + LANE - 4 - value / most * (LANE - ROOM - 4), 1),
                "label": f"{found[place].time}: {value:.1f} tokens/s",
                "kept": found[place].kept,
            }
            for place, value in known
        ]
        lanes.append(
            {
                "name": "1 at a time" if count == 1 else f"{count} at once",
                "most": f"{most:.1f} tokens/s",
                "top": top,
                "base": top + LANE - 4,
                "points": points,
                "line": " ".join(f"{one['x']},{one['y']}" for one in points),
            }
        )
    if not lanes:
        return None
    height = LANE * len(lanes) + 18
    ends = (found[0].time, found[-1].time)
    return {"width": WIDTH, "height": height, "label": LABEL, "lanes": lanes, "ends": ends}


def _of(entry: Mapping[str, Any], kept: bool = True) -> Measurement:
    speeds = {}
    for one in mappings(entry.get("speeds")):
        count = whole(one.get("concurrency"))
        values = [number(one.get(key)) for key in ("tokens_per_s", "first_p50_s", "pace_p50_s")]
        if count is not None and count > 0:
            speeds[count] = (values[0], values[1], values[2])
    words = [text(entry.get(key)) or "-" for key in ("time", "version", "release")]
    return Measurement(words[0], words[1], words[2][:12], speeds, kept)
