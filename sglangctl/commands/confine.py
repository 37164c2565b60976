"""Run a command with one user's rights, in the sandbox of `hardening: strict`: code of others, which
root must not run. Its output goes where ours goes.

Exit status: the command's; 128 and the signal's number; 124 where it was ended at --limit.
"""

from __future__ import annotations

import argparse
import os
from pathlib import Path

from sglangctl.systemd import confined
from sglangctl.util.errors import Unusable


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--user", required=True)
    parser.add_argument("--writable", action="append", type=Path, default=[], metavar="DIR")
    parser.add_argument("--limit", type=float, default=3600.0, metavar="SECONDS")
    parser.add_argument("command", nargs="+", metavar="-- COMMAND")


def run(args: argparse.Namespace) -> int:
    if os.geteuid() != 0:
        raise Unusable("only root can give a command another user's rights")
    try:
        ended = confined.run(
            args.command, args.user, limit_s=args.limit, writable=args.writable, streamed=True
        )
    except KeyError:
        raise Unusable(f"there is no user {args.user} on this host") from None
    if ended.returncode is None:
        return confined.TIMED_OUT
    return ended.returncode if ended.returncode >= 0 else 128 - ended.returncode
