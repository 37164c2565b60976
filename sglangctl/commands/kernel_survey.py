"""The state of the kernel on this host, in one document for the deploy."""

from __future__ import annotations

import argparse
import json
from pathlib import Path

from sglangctl.sgl_kernel.survey import survey


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--venv", type=Path, required=True, help="need not be there yet")
    parser.add_argument("--sm", metavar="ARCH", help="default: this host's GPU")
    parser.add_argument("--all", action="store_true", help="read every library, not only one")


def run(args: argparse.Namespace) -> int:
    print(json.dumps(survey(args.venv, args.sm, everything=args.all)))
    return 0
