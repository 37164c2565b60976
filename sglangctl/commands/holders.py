"""Who uses the GPUs: every process with /dev/nvidia<N> open or memory on a GPU, and its class.

The classes, relative to an engine of the inventory: `ours` (in its unit), `sibling` (in another
engine's unit: never ended), `replaced` (in a unit that the inventory replaces, or an orphan of
it), `engine` (another inference engine, by its own title or command), `protected` (the driver's
and the desktop's own: never ended), `foreign` (anything else).

With --json: {"v": 1, "holders": [{"pid", "gpus", "class", "reason", "unit", ...}], "gpus": [...],
"reason"}; `reason` says why GPU numbers are missing, else null. Exit status 0, 2 when the
configuration cannot be read (the classes then rest on what could be) or has no such engine, and
when the host has no such GPU.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from dataclasses import replace

from sglangctl.gpu import gpus
from sglangctl.holders import survey
from sglangctl.holders.survey import Holder
from sglangctl.proc import open_files
from sglangctl.state.config import (
    EngineConfig,
    readable,
    unknown,
)
from sglangctl.state.paths import Paths
from sglangctl.util import terminal
from sglangctl.util.errors import Unusable

HEAD = ("GPU", "MIB", "PID", "USER", "CLASS", "UNIT OR CONTAINER", "STARTED (UTC)", "COMMAND")
RIGHT = {1, 2}
WIDEST_UNIT = 40


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--gpu", type=int, metavar="N", help="only who holds this GPU")
    parser.add_argument(
        "--engine", metavar="NAME", help="classes relative to this engine (default: the first)"
    )
    parser.add_argument("--json", action="store_true", help="a document instead of a table")


def run(args: argparse.Namespace) -> int:
    host, engines, troubles = readable(Paths())
    engine = _chosen(args.engine, engines)
    if engine is None and args.engine and not troubles:
        troubles = [unknown(args.engine, Paths())]
    for trouble in troubles:
        print(f"sglangctl holders: {terminal.escaped(trouble)}", file=sys.stderr)
    if engine is None and args.engine:
        return 2
    siblings = [other for other in engines if other is not engine]
    looked = survey.survey()
    reading = _of_one(looked.reading, args.gpu)
    found = [
        item
        for item in survey.find(engine, host, siblings, looked)
        if item.gpus and (args.gpu is None or args.gpu in item.gpus)
    ]
    if args.json:
        print(json.dumps(survey.document(found, reading)))
    else:
        print("\n".join(table(found, reading, terminal.looks(sys.stdout)[1])))
    if looked.unreadable:
        print(
            f"{looked.unreadable} processes of other users could not be looked at: run it as root",
            file=sys.stderr,
        )
    if looked.unfinished:
        print(open_files.not_complete(looked.unfinished), file=sys.stderr)
    return 2 if troubles else 0


def table(found: Sequence[Holder], reading: gpus.Reading, width: int) -> list[str]:
    """Lines for a terminal `width` columns wide: the GPUs, then each holder and its reason."""
    lines = [_gpu_line(gpu, found) for gpu in reading.gpus or ()]
    if reading.gpus is None:
        lines.append(f"GPU statistics unavailable: {terminal.escaped(reading.reason or '')}")
    if not found:
        known = (
            f"GPU {reading.gpus[0].index}" if reading.gpus and len(reading.gpus) == 1 else "a GPU"
        )
        return [*lines, f"no process holds {known}"]
    rows = [HEAD, *(_row(item) for item in found)]
    widths = [max(len(row[at]) for row in rows) for at in range(len(HEAD) - 1)]
    for row, item in zip(rows, [None, *found]):
        cells = [
            cell.rjust(size) if at in RIGHT else cell.ljust(size)
            for at, (cell, size) in enumerate(zip(row, widths))
        ]
        lines.append(terminal.cut("  ".join([*cells, row[-1]]).rstrip(), width))
        if item is not None:
            lines.append(terminal.cut(f"    {item.class_}: {item.reason}", width))
    return lines


def _row(item: Holder) -> tuple[str, ...]:
    known = [mib for mib in item.memory_mib.values() if mib is not None]
    place = item.unit or "-"
    if item.container:
        place = item.container_name or item.container[:12]
    return (
        ",".join(map(str, item.uses)) or "-",
        str(sum(known)) if known else "-",
        str(item.pid),
        terminal.cut(terminal.escaped(item.user), 16),
        item.class_,
        terminal.cut(terminal.escaped(place), WIDEST_UNIT),
        item.started.replace("T", " ").rstrip("Z"),
        item.title,
    )


def _gpu_line(gpu: gpus.Gpu, found: Sequence[Holder]) -> str:
    if gpu.error:
        return f"GPU {gpu.index}: {terminal.escaped(gpu.error)}"
    number = sum(gpu.index in item.uses for item in found)
    parts = [f"GPU {gpu.index} {terminal.escaped(gpu.name)}"]
    if gpu.memory_used_mib is not None:
        parts.append(f"{gpu.memory_used_mib} of {gpu.memory_total_mib} MiB used")
    if gpu.utilization_pct is not None:
        parts.append(f"{gpu.utilization_pct} % busy")
    if gpu.power_w is not None:
        parts.append(f"{gpu.power_w:.0f} W")
    return ", ".join([*parts, f"{number} holder{'' if number == 1 else 's'}"])


def _of_one(reading: gpus.Reading, index: int | None) -> gpus.Reading:
    """What was read of one GPU, of all for None; Unusable where the host has no such GPU."""
    if index is None or reading.gpus is None:
        return reading
    chosen = tuple(gpu for gpu in reading.gpus if gpu.index == index)
    if not chosen:
        known = ", ".join(str(gpu.index) for gpu in reading.gpus) or "none"
        raise Unusable(f"this host has no GPU {index}; it has: {known}")
    return replace(reading, gpus=chosen)


def _chosen(name: str | None, engines: Sequence[EngineConfig]) -> EngineConfig | None:
    if name is None:
        return engines[0] if engines else None
    return next((engine for engine in engines if engine.name == name), None)
