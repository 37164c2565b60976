"""What an engine has compiled, for a deploy that shares it between hosts (`compile_cache.share`).

look: its key, and how many compiled files are there. pack: an archive of them, for root alone. adopt:
unpack the archive of KEY, which a deploy has brought, with the rights of the engine's user.

Standard input has the request: {"engine", "user", "venv", "model", "drafter", "gpus", "flags"}. Prints
one document.
"""

from __future__ import annotations

import argparse
import json
import sys

from sglangctl.state.paths import Paths
from sglangctl.util.errors import Unusable


def add_arguments(parser: argparse.ArgumentParser) -> None:
    commands = parser.add_subparsers(dest="subcommand", required=True, metavar="COMMAND")
    commands.add_parser("look", help="its key, and how many files are there")
    commands.add_parser("pack", help="an archive of what was compiled")
    adopt = commands.add_parser("adopt", help="unpack an archive that was brought")
    adopt.add_argument("key")
    adopt.add_argument("sha256")


def run(args: argparse.Namespace) -> int:
    from sglangctl.compiled import exchange, key

    try:
        document = json.load(sys.stdin)
    except (ValueError, RecursionError) as error:
        raise Unusable(f"standard input is no request: {error}") from None
    request, paths = key.parse(document if isinstance(document, dict) else {}), Paths()
    if args.subcommand == "adopt":
        answer = exchange.adopt(request, args.key, args.sha256, paths)
    else:
        answer = {"look": exchange.look, "pack": exchange.pack}[args.subcommand](request, paths)
    print(json.dumps(answer))
    return 0
