"""Write a release, sent as JSON on standard input, beside the others; nothing that runs is touched.

{"digest": "...", "user": "sglang", "files": {"sglang.service": "<base64>", ...}}
Standard input, because a release holds the api key and a command line is public.
"""

from __future__ import annotations

import argparse
import json
import sys

from sglangctl.paths import Paths
from sglangctl.release import ReleaseError, stage


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("name", help="the engine's name")


def run(args: argparse.Namespace) -> int:
    try:
        digest = stage(args.name, json.load(sys.stdin), Paths())
    except (ReleaseError, ValueError, OSError) as error:
        print(f"sglangctl stage: {error}", file=sys.stderr)
        return 1
    print(digest)
    return 0
