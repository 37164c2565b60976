"""Write a release, sent as JSON on standard input, beside the others; nothing that runs is touched.

{"digest": "...", "user": "sglang", "files": {"sglang.service": "<base64>", ...}}
Standard input, because a release holds the api key and a command line is public.
"""

from __future__ import annotations

import argparse
import json
import sys

from sglangctl.state.paths import Paths
from sglangctl.state.release import stage
from sglangctl.util.errors import Failed


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("name", help="the engine's name")


def run(args: argparse.Namespace) -> int:
    try:
        release = json.load(sys.stdin)
    except ValueError as error:
        raise Failed(f"standard input is not a release: {error}") from None
    print(stage(args.name, release, Paths()))
    return 0
