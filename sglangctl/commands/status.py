"""What each engine is doing: phase, progress, outcome, and the cause with its log lines.

Exit status: 0 every engine asked for serves (serving, ready, degraded); 1 one does not; 2 it
could not be told (no such engine, not readable, or its watch is not running).
--json: {"v": 1, "status": [{name, unit, active, ...}]}, times in seconds, memory in MiB.
"""

from __future__ import annotations

import argparse
import json
import sys
from dataclasses import asdict

from sglangctl.diagnosis.outcomes import SERVED
from sglangctl.report.status import VERSION, EngineStatus, look
from sglangctl.startup import render
from sglangctl.state.config import engine_names, load_engine
from sglangctl.state.paths import Paths
from sglangctl.util import os_errors
from sglangctl.util.errors import Unusable
from sglangctl.util.terminal import escaped

FRESH_S = 5.0
"""A reading that is older than this carries its age."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("name", metavar="NAME", nargs="?", help="one engine (default: all)")
    parser.add_argument("--json", action="store_true", help="a document for programs")


def run(args: argparse.Namespace) -> int:
    paths = Paths()
    found: list[EngineStatus] = []
    names = [args.name] if args.name else engine_names(paths)
    for name in names:
        # One that cannot be looked at does not hide the others.
        try:
            found.append(look(load_engine(name, paths), paths))
        except Unusable as error:
            refuse(str(error))
        except OSError as error:
            refuse(f"{name}: {os_errors.sentence(error)}")
    if args.json and (found or not args.name):
        documents = [asdict(one) for one in found]
        print(json.dumps({"v": VERSION, "status": documents}))
    elif not names:
        print(f"no engine is configured in {paths.engines}: deploy first")
    elif found:
        print("\n".join(line for one in found for line in lines(one)))
    return max((one.exit for one in found), default=2) if len(found) == len(names) else 2


def refuse(sentence: str) -> None:
    print(f"sglangctl status: {escaped(sentence)}", file=sys.stderr)


def memory(one: EngineStatus) -> str:
    """GPU memory, with its age; nothing of an engine that holds none any more."""
    text = "" if one.active in ("inactive", "failed") else render.gpu_memory(one.gpus)
    if text and one.gpus_age_s is not None and one.gpus_age_s >= FRESH_S:
        text += f" ({render.duration(one.gpus_age_s)} ago)"
    return text


def lines(one: EngineStatus) -> list[str]:
    """For people: one line an engine, more below it where something is to be said."""
    head = [
        one.name,
        render.stopped(one.stopped_by) if one.stopped_by else one.outcome or "unknown",
    ]
    if one.phase and one.outcome not in SERVED and not one.stopped_by:
        head.append(one.phase)
    head += [escaped(one.progress)] if one.progress else []
    if one.eta_s is not None and one.outcome == "pending":
        error = "" if one.eta_error_s is None else f" (+- {render.duration(one.eta_error_s)})"
        head.append(f"ETA {render.duration(one.eta_s)}{error}")
    if one.serving_s is not None:
        head.append(f"serving for {render.duration(one.serving_s)}")
    elif one.elapsed_s is not None:
        since = "after its launch" if one.stopped_by else "since launch"
        head.append(f"{render.duration(one.elapsed_s)} {since}")
    head += [text for text in (memory(one), render.answer(one.generate)) if text]
    shown = ["  ".join(head)]
    unit = f"{one.unit} {one.active}/{one.sub}" if one.active else f"{one.unit} (no systemd)"
    shown.append(f"  {unit}" + (f", restarted {one.restarts} times" if one.restarts else ""))
    shown += [f"  note: {escaped(note)}" for note in one.notes]
    if one.stopped_by:
        return shown
    if one.cause:
        shown += [f"  {line}" for line in render.explain(one.name, one.cause)]
    if one.outcome not in ("pending", "ready", "serving", None):
        shown += [f"  | {line}" for line in render.evidence(one.evidence)]
    return shown
