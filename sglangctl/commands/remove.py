"""Stop an engine and take away what was put on this host for it: never weights, never what others
put there, and of what engines share only what no other engine needs.

Exit status: 0 gone (also when it was), 1 not, 2 its configuration cannot be read, 3 refused as by
`sglangctl stop`.
Interrupted, it goes on when it is called again.
"""

from __future__ import annotations

import argparse

from sglangctl.state.paths import Paths
from sglangctl.switch.remove import remove


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("name", help="the engine's name")


def run(args: argparse.Namespace) -> int:
    paths = Paths()
    remove(args.name, paths, lambda line: print(line, flush=True))
    return 0
