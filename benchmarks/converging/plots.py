"""Draws what benchmarks/converge.py has kept: docs/_static/converge-time.svg and converge-fleet.svg.

    python3 -m benchmarks.converging.plots

From docs/evidence/converge*.json: the wall clock by the number of hosts, and the controller's processor time.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping, Sequence
from html import escape
from pathlib import Path
from typing import Any

from benchmarks.evidence import ROOT

EVIDENCE, STATIC = ROOT / "docs/evidence", ROOT / "docs/_static"
WIDTH, HEIGHT, LEFT, RIGHT, TOP, BOTTOM = 720, 300, 60, 190, 20, 44
COLOURS = ("#1b6ca8", "#8a8a8a", "#b5482a")
NAMES = {
    "noop": "a deploy with nothing to do",
    "exec": "pyinfra exec -- true",
    "ansible": "Ansible",
}
Line = Sequence[tuple[float, float]]


def kept() -> list[dict[str, Any]]:
    """The figures that are kept, by number of hosts."""
    found = [
        json.loads(path.read_text("utf-8")) for path in sorted(EVIDENCE.glob("converge*.json"))
    ]
    return sorted(found, key=lambda one: one["hosts"])


def lines(figures: Sequence[Mapping[str, Any]]) -> tuple[dict[str, Line], dict[str, Line]]:
    """Of the two pictures: name -> its points. Seconds by hosts."""
    time = {
        title: [(one["hosts"], one["median_s"][name]) for one in figures if name in one["median_s"]]
        for name, title in NAMES.items()
    }
    fleet = [part for one in figures for part in one.get("fleet", ())]
    points = sorted({part["hosts"]: part for part in fleet}.items())
    return time, {
        NAMES["noop"]: [(hosts, part["processor_s"]) for hosts, part in points],
        NAMES["exec"]: [(hosts, part["exec_processor_s"]) for hosts, part in points],
    }


def picture(title: str, drawn: Mapping[str, Line], log: bool) -> str:
    """An SVG. `log`: both axes are logarithmic."""
    drawn = {name: line for name, line in drawn.items() if line}
    xs = sorted({x for line in drawn.values() for x, _ in line})
    most = max(y for line in drawn.values() for _, y in line)
    scale: Callable[[float], float] = math.log10 if log else float
    low, high = (scale(xs[0]), scale(0.5)) if log else (0.0, 0.0)
    width, height = WIDTH - LEFT - RIGHT, HEIGHT - TOP - BOTTOM

    def at(x: float, y: float) -> tuple[float, float]:
        across = (scale(x) - low) / ((scale(xs[-1]) - low) or 1)
        up = (scale(y) - high) / (scale(most * 1.1) - high)
        return round(LEFT + across * width, 1), round(TOP + (1 - up) * height, 1)

    steps = [0.5 * 2**n for n in range(12)] if log else [tick(most) * n for n in range(12)]
    parts = []
    for step in steps:
        if step <= most * 1.1:
            y = at(xs[-1], step)[1]
            parts.append(f'<path d="M{LEFT} {y}H{LEFT + width}" stroke="#ddd"/>')
            parts.append(f'<text x="{LEFT - 8}" y="{y + 4}" text-anchor="end">{step:g}</text>')
    for x in xs:
        parts.append(
            f'<text x="{at(x, most)[0]}" y="{TOP + height + 18}" text-anchor="middle">{x:g}</text>'
        )
    for (name, line), colour in zip(drawn.items(), COLOURS):
        points = [at(*point) for point in line]
        path = " ".join(f"{x},{y}" for x, y in points)
        parts.append(f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="2"/>')
        parts += [f'<circle cx="{x}" cy="{y}" r="3" fill="{colour}"/>' for x, y in points]
        x, y = points[-1]
        parts.append(f'<text x="{x + 8}" y="{y + 4}" fill="{colour}">{escape(name)}</text>')
    middle = LEFT + width / 2
    parts.append(f'<text x="{middle}" y="{HEIGHT - 6}" text-anchor="middle">hosts</text>')
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" role="img" '
        f'font-family="sans-serif" font-size="12"><title>{escape(title)}</title>'
        f'<rect width="{WIDTH}" height="{HEIGHT}" fill="#fff"/>{"".join(parts)}</svg>\n'
    )


def tick(most: float) -> float:
    """A round step of which at most ten fit."""
    unit: float = 10 ** math.floor(math.log10(most / 4 or 1))
    return next(unit * n for n in (1, 2, 5, 10) if unit * n * 10 >= most)


def main() -> None:
    figures = kept()
    if not figures:
        raise SystemExit("nothing is kept: run benchmarks.converge with --evidence first")
    time, fleet = lines(figures)
    for name, title, drawn, log in (
        ("converge-time", "Seconds of a run by the number of hosts", time, True),
        ("converge-fleet", "Seconds of the controller's processor by hosts", fleet, False),
    ):
        path: Path = STATIC / f"{name}.svg"
        path.write_text(picture(title, drawn, log), encoding="utf-8")
        print(path)


if __name__ == "__main__":
    main()
