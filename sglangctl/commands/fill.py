"""Install packages into a new environment, from a lock or as pip chooses. Root's afterwards.

Exit status: 0 installed, 124 ended at --limit, else that of uv or pip.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from sglangctl.state.paths import Paths


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("venv", type=Path)
    parser.add_argument("--requirements", type=Path, metavar="FILE", help="a lock")
    parser.add_argument("--package", action="append", default=[], metavar="PIN")
    parser.add_argument("--pip-argument", action="append", default=[], metavar="ARGUMENT")
    parser.add_argument("--limit", type=float, default=3600.0, metavar="SECONDS")
    parser.add_argument("--progress", type=Path, metavar="FILE", help="how much has come")


def run(args: argparse.Namespace) -> int:
    from sglangctl.packages.fill import Wanted, fill

    wanted = Wanted(
        args.venv, args.requirements, tuple(args.package), tuple(args.pip_argument), args.limit
    )
    return fill(wanted, args.progress, Paths())
