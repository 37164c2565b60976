"""Prove that an engine's GPUs add up: all-reduces by its own torch, every sum checked.

The engine must be down, and nobody else on its GPUs. It runs as the engine's user in a unit of its own,
for 2, 4, 8, ... ranks up to tensor_parallel and 4 B to 64 MiB, as the unit configures NCCL and with
NCCL_P2P_DISABLE=1. --profiles names a file (- is standard input) with more settings to compare: a JSON
object, name -> NCCL's variables. The result is kept: `nccl.profile: auto` chooses by it.

Exit status (of the engine's own setting): 0 every sum is right, 1 one is wrong, 2 not possible, 3
refused (a GPU has a holder, or a switch is under way), 4 hung. With --json: {"v": 1, "collective":
{"time", "outcome", "exit", "key": {"driver", "nccl", "topology"}, "arms": [{"name", "environment",
"outcome", "sentence", "worlds": [{"world", "outcome", "sentence", "sizes"}]}], "lines", ...}}.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import Any

from sglangctl.collective import text
from sglangctl.collective.arms import profiles_from
from sglangctl.collective.run import WORLD_S, measure
from sglangctl.state import collectives
from sglangctl.state.config import VERSION, load_engine
from sglangctl.state.paths import Paths
from sglangctl.util.terminal import escaped


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("name", metavar="NAME", help="the engine")
    parser.add_argument("--json", action="store_true", help="one JSON document")
    parser.add_argument("--show", action="store_true", help="what is kept; measures nothing")
    parser.add_argument("--release", metavar="DIGEST", help="a staged one; default: the live one")
    parser.add_argument("--profiles", metavar="FILE", help="more settings to compare")
    parser.add_argument(
        "--limit",
        metavar="SECONDS",
        type=seconds,
        default=WORLD_S,
        help=f"for each number of ranks (default {WORLD_S:g})",
    )


def run(args: argparse.Namespace) -> int:
    paths = Paths()
    engine = load_engine(args.name, paths)
    if args.show:
        return show(engine.name, collectives.entries(engine.name, paths), args.json)
    profiles = profiles_from(content(args.profiles)) if args.profiles else {}
    kept = measure(engine, paths, args.release, profiles, args.limit)
    if args.json:
        more = {"wedged": kept.wedged, "unkept": kept.unkept, "lines": list(text.lines(kept))}
        print(json.dumps({"v": VERSION, "collective": {**kept.entry, **more}}))
    else:
        print("\n".join(map(escaped, text.lines(kept))))
    return kept.result.status


def show(name: str, kept: list[dict[str, Any]], as_json: bool) -> int:
    """What was found out before, oldest first."""
    if as_json:
        print(json.dumps({"v": VERSION, "collective": kept}))
    elif not kept:
        print(f"nothing is kept of {name}: sglangctl collective {name}, while it is down")
    else:
        print("\n".join(escaped(collectives.summary(one)) for one in kept))
    return 0


def content(file: str) -> str:
    return sys.stdin.read() if file == "-" else Path(file).read_text(encoding="utf-8")


def seconds(value: str) -> float:
    """A time limit: one second to an hour."""
    found = float(value)
    if not 1 <= found <= 3600:
        raise argparse.ArgumentTypeError("1 to 3600 seconds")
    return found
