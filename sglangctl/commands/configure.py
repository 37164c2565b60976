"""Write an engine's configuration, and have its watch read it; the engine keeps running.

The configuration comes through standard input, as JSON. What a switch changes it writes itself
(`sglangctl switch --config`); this is for what needs none: a readiness limit, a newer program of
the watch, and an engine of which no release is live yet. Under the host's lock. --seen as in
`sglangctl switch`. Exit status: 0 done, 1 not, 2 what was sent is not a configuration (then nothing
was changed).
"""

from __future__ import annotations

import argparse
import sys

from sglangctl.state.paths import Paths
from sglangctl.switch.configure import configure


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("name", help="the engine's name")
    parser.add_argument(
        "--seen", metavar="TIME", help="the state that the caller's decision is based on"
    )
    parser.add_argument(
        "--restart-watch", action="store_true", help="restart sglang-watch@NAME.service"
    )


def run(args: argparse.Namespace) -> int:
    configure(args.name, sys.stdin.read(), args.seen, args.restart_watch, Paths())
    return 0
