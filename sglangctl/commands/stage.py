"""Write a release, sent as JSON on standard input, beside the others; nothing that runs is touched.

{"digest": "...", "user": "sglang", "files": {"sglang.service": "<base64>", ...}}
Standard input, because a release holds the api key and a command line is public.
"""

from __future__ import annotations

import argparse
import json
import sys

from sglangctl.state.paths import Paths
from sglangctl.state.release import ReleaseError, stage
from sglangctl.util import os_errors
from sglangctl.util.terminal import harmless


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("name", help="the engine's name")


def run(args: argparse.Namespace) -> int:
    try:
        release = json.load(sys.stdin)
    except ValueError as error:
        return _refuse(f"standard input is not a release: {error}")
    try:
        digest = stage(args.name, release, Paths())
    except OSError as error:
        return _refuse(os_errors.sentence(error))
    except (ReleaseError, ValueError) as error:
        return _refuse(str(error))
    print(digest)
    return 0


def _refuse(sentence: str) -> int:
    print(f"sglangctl stage: {harmless(sentence)}", file=sys.stderr)
    return 1
