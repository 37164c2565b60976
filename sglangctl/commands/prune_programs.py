"""Delete the versions of this program that nothing uses: not the link, no process, no unit."""

from __future__ import annotations

import argparse

from sglangctl.state.paths import Paths
from sglangctl.state.programs import prune


def add_arguments(parser: argparse.ArgumentParser) -> None:
    del parser  # no arguments


def run(args: argparse.Namespace) -> int:
    del args
    for path in prune(Paths()):
        print(f"removed {path}")
    return 0
