"""Put a release from before live again: the known-good one, or the previous one, or the one named.

A switch like any other: when that release does not become ready, what runs now comes back. The next
deploy puts the inventory's release live again, so change the inventory before that.

Exit status: 0 it serves (--detach: the switch has begun), 1 it does not, or there is no such
release, 2 no such engine, 3 refused (nothing was changed).
"""

from __future__ import annotations

import argparse

from sglangctl.state.config import load_engine
from sglangctl.state.paths import Paths
from sglangctl.switch.journal import recorded
from sglangctl.switch.on_demand import wanted
from sglangctl.switch.transaction import begin, detach
from sglangctl.systemd.unit_names import SWITCH


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("name", help="the engine's name")
    parser.add_argument("release", nargs="?", help="its first digits; see releases/ of the engine")
    parser.add_argument("--detach", metavar="TICKET", help=f"run as {SWITCH}, under this name")


def run(args: argparse.Namespace) -> int:
    paths = Paths()
    load_engine(args.name, paths)  # one that cannot be used is an error of its own
    asked = wanted(args.name, args.release, paths)
    if args.detach:
        detach(asked, args.detach, paths)
    else:
        with recorded(args.name, paths) as record:
            begin(asked, paths, record)
    return 0
