"""reports/<UTC time>/report.html: the report as one page for people, with no script and no file beside
it. Pure: from the document of report.json."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import Any

from jinja2 import Environment, FileSystemLoader

from roles.inventory.shipped import TEMPLATES
from roles.report import history
from roles.report.timeline import Bar, Timeline, timeline
from sglangctl.startup.render import duration, walks
from sglangctl.util.terminal import escaped, without_ansi
from sglangctl.util.values import mapping, mappings, number, text, texts

WIDTH, LANE, LABEL = 960.0, 34.0, 120.0
"""Of the picture, in its own units: all of it, one lane, the lanes' names."""


@cache
def _templates() -> Environment:
    found = Environment(
        loader=FileSystemLoader(TEMPLATES),
        keep_trailing_newline=True,
        trim_blocks=True,
        lstrip_blocks=True,
        autoescape=True,  # log lines, model names and paths of hosts: data, never markup
    )
    found.filters["shown"] = shown
    found.filters["duration"] = duration
    return found


def page(document: Mapping[str, Any]) -> str:
    """The page of one run."""
    hosts = [of_host(one, document.get("time")) for one in mappings(document.get("report"))]
    bad = sum(1 for one in hosts if one["outcome"] != "ok")
    done = any(one["done"] for one in hosts)
    foreseen = any(one["choice"].get("fails") for host in hosts for one in host["engines"])
    summary = f"{len(hosts) - bad} of {len(hosts)} hosts are as they should be"
    if not done:
        failed = f"; {bad} of {len(hosts)} hosts failed" if bad else ""
        summary = f"Nothing was done{failed}"
    return (
        _templates()
        .get_template("report.html.j2")
        .render(
            deploy=document.get("deploy"),
            time=document.get("time"),
            hosts=hosts,
            summary=summary,
            good=not bad and (done or not foreseen),
            done=done,
        )
    )


def shown(value: object) -> str:
    """Text of a host, its control characters written out; newlines stay."""
    return "\n".join(escaped(line) for line in without_ansi(str(value)).split("\n"))


def of_host(host: Mapping[str, Any], time: object = None) -> dict[str, Any]:
    results = {str(one.get("engine")): one for one in mappings(host.get("engines"))}
    choices = {str(one.get("engine")): one for one in mappings(host.get("choices"))}
    switches = mapping(host.get("switches"))
    names = dict.fromkeys([*choices, *results, *switches])
    operations = mappings(host.get("operations"))
    return {
        "name": host.get("host"),
        "outcome": host.get("outcome"),
        "messages": host.get("messages") or [],
        "engines": [
            of_engine(name, results.get(name, {}), choices.get(name, {}), switches.get(name), time)
            for name in names
        ],
        "operations": [one for one in operations if one.get("changed") or not one.get("success")],
        "done": any(one.get("success") is not None for one in operations),
        "quiet": sum(1 for one in operations if one.get("success") and not one.get("changed")),
        "lists": mapping(host.get("lists")),
    }


def of_engine(
    name: str,
    result: Mapping[str, Any],
    choice: Mapping[str, Any],
    switch: object,
    time: object = None,
) -> dict[str, Any]:
    events = mappings(switch)
    seen = timeline(events, result, choice)
    generate = mapping(result.get("generate"))
    load = mapping(generate.get("acceptance"))
    measured = history.measurements(result.get("history"), load, time)
    return {
        "name": name,
        "result": result,
        "checks": mappings(result.get("checks")),
        "outcome": result.get("outcome") or "not asked",
        "good": result.get("exit") == 0,
        "asked": bool(result),
        "choice": choice,
        "picture": picture(seen) if seen.seen else None,
        "phases": [(bar.name, bar.seconds) for bar in seen.phases],
        "dark": seen.dark,
        "speed": speed(generate),
        "walked": walks(generate.get("warm")),
        "acceptance": acceptance(load),
        "measured": measured,
        "chart": history.chart(measured),
        "steps": [
            (number(one.get("t")) or 0.0, one["text"]) for one in events if text(one.get("text"))
        ],
    }


def speed(generate: Mapping[str, Any]) -> list[tuple[str, str]]:
    found = []
    for key, label, form in (
        ("tokens_per_s", "tokens/s", "{:.1f}"),
        ("ttft_s", "first token", "{:.2f} s"),
        ("accept_length", "accept length", "{:.2f}"),
    ):
        value = number(generate.get(key))
        if value is not None:
            found.append((label, form.format(value)))
    return found


def acceptance(fields: Mapping[str, Any]) -> dict[str, Any] | None:
    """The measured load and that of the engine it replaced, a row for each concurrency, and how they
    compare."""
    if not fields:
        return None
    columns = ("tokens_per_s", "first_p50_s", "first_p95_s", "pace_p50_s", "gap_p95_s")

    def rows(speeds: object) -> list[list[Any]]:
        return [
            [one.get("concurrency"), *(number(one.get(column)) for column in columns)]
            for one in mappings(speeds)
        ]

    said = [*texts(fields.get("worse")), *texts(fields.get("unsure"))]
    before = mapping(fields.get("before"))
    return {
        "rows": rows(fields.get("speeds")),
        "before": rows(before.get("speeds")),
        "who": text(before.get("who")),
        "answers": text(mapping(fields.get("answers")).get("said")),
        "said": said,
        "worse": bool(fields.get("worse") or fields.get("fault")),
        "against": fields.get("compared_with"),
        "fault": fields.get("fault"),
    }


def picture(seen: Timeline) -> dict[str, Any]:
    """Rectangles, a line and a scale, in the units of the SVG's own viewBox."""
    scale = (WIDTH - LABEL) / seen.end
    lanes: list[tuple[str, str, tuple[Bar, ...]]] = [
        ("switch", "step", seen.steps),
        ("start", "phase", seen.phases),
        ("service", "dark", (seen.dark,) if seen.dark else ()),
    ]
    drawn = [lane for lane in lanes if lane[2]]
    bars = [
        {
            "x": round(LABEL + bar.begin * scale, 1),
            "y": LANE * row + 4,
            "width": max(1.5, round(bar.seconds * scale, 1)),
            "kind": kind,
            "number": place % 2,
            "name": bar.name,
            "label": bar.name if bar.seconds * scale > 7.0 * len(bar.name) + 12 else "",
            "taken": duration(bar.seconds),
        }
        for row, (_, kind, found) in enumerate(drawn)
        for place, bar in enumerate(found)
    ]
    rows = [(label, LANE * row) for row, (label, _, _) in enumerate(drawn)]
    top = LANE * len(drawn)
    most = max((used for _, used in seen.memory), default=0.0)
    line = ""
    if most > 0:
        rows.append((f"to {most / 1024:.1f} GiB", top))
        line = " ".join(
            f"{LABEL + t * scale:.1f},{top + LANE - 4 - used / most * (LANE - 8):.1f}"
            for t, used in seen.memory
        )
        top += LANE
    return {
        "width": WIDTH,
        "lane": LANE,
        "height": top + 22,
        "bars": bars,
        "rows": rows,
        "line": line,
        "ticks": [
            (LABEL + part / 4 * (WIDTH - LABEL), duration(seen.end * part / 4)) for part in range(5)
        ],
        "axis": top,
    }
