"""Run a command with one user's rights, in the sandbox of `hardening: strict`: code of others, which
root must not run. Its output is copied to ours.

With --build the user is the one that installs and builds, and --writable names folders that it
fills: its own while the command runs, then root's, writable for nobody else.

Exit status: the command's; 128 and the signal's number; 124 where it was ended at --limit.
"""

from __future__ import annotations

import argparse
import os
import signal
import sys
from pathlib import Path

from sglangctl.state import build_user
from sglangctl.state.paths import Paths
from sglangctl.systemd import confined
from sglangctl.util.errors import Unusable


def add_arguments(parser: argparse.ArgumentParser) -> None:
    who = parser.add_mutually_exclusive_group(required=True)
    who.add_argument("--user")
    who.add_argument("--build", action="store_true", help=f"as {build_user.NAME}")
    parser.add_argument("--writable", action="append", type=Path, default=[], metavar="DIR")
    parser.add_argument("--limit", type=float, default=3600.0, metavar="SECONDS")
    parser.add_argument("command", nargs="+", metavar="-- COMMAND")


def run(args: argparse.Namespace) -> int:
    if os.geteuid() != 0:
        raise Unusable("only root can give a command another user's rights")
    # What runs in a unit of its own must not outlive us.
    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(128 + number))
    folders, limit_s = args.writable, args.limit
    try:
        if args.build:
            ended = build_user.run(
                args.command, Paths(), limit_s=limit_s, filled=folders, streamed=True
            )
        else:
            ended = confined.run(
                args.command, args.user, limit_s=limit_s, writable=folders, streamed=True
            )
    except BrokenPipeError:
        return 128 + signal.SIGPIPE  # it was ended: who waits for it must not go on
    except KeyError:
        raise Unusable(f"there is no user {args.user} on this host") from None
    return confined.status(ended)
