"""What each engine is doing, as a table; below it the cause with its log lines and the command.

With NAME also its unit, GPU memory and speed. Colours only in a terminal, and not with NO_COLOR.
Exit status: 0 every engine asked for serves (serving, ready, degraded); 1 one does not; 2 it
could not be told (no such engine, not readable, or its watch is not running).
--json: {"v": 1, "status": [{name, unit, active, ...}]}, times in seconds, memory in MiB.
"""

from __future__ import annotations

import argparse
import json
import sys
from dataclasses import asdict

from sglangctl.report.status import VERSION, EngineStatus, look
from sglangctl.report.status_text import lines
from sglangctl.state.config import engine_names, load_engine
from sglangctl.state.paths import Paths
from sglangctl.util import os_errors, terminal
from sglangctl.util.errors import Unusable
from sglangctl.util.terminal import escaped


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
        colour, width = terminal.looks(sys.stdout)
        print("\n".join(lines(found, width, colour, details=args.name is not None)))
    return max((one.exit for one in found), default=2) if len(found) == len(names) else 2


def refuse(sentence: str) -> None:
    print(f"sglangctl status: {escaped(sentence)}", file=sys.stderr)
