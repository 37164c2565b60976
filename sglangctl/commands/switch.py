"""Put a staged release live: stop what it replaces, free the GPUs, move the links, start it, and follow
the start. If the new engine does not become ready, what ran before is started again.

One transaction on the host, under the host's lock, and all that the running engine and its watch
read is written inside of it: --config hands over what goes to /etc/sglangctl/engines (- is standard
input). With --detach it runs as the transient unit sglangctl-switch.service: a lost connection
changes nothing for it. --follow TICKET prints its journal from byte --from on, and last
"@ TICKET OFFSET STATUS" (- while it runs): both may be called again after a lost link. --seen is the
`time` of the state.json that the caller decided by (- for none): if it is another one now, nothing
is changed. Exit status: 0 the new engine serves (--detach: the switch has begun; --resume: the side that
counts serves), 1 it does not, and the last lines say what serves, 2 no such engine or no readable
configuration, 3 refused: somebody else holds the GPUs and may not be ended, or systemd does not answer (in
both nothing was changed).
"""

from __future__ import annotations

import argparse
import sys
from functools import partial
from pathlib import Path

from sglangctl import free
from sglangctl.preflight import staged
from sglangctl.state import follow
from sglangctl.state.config import require_known
from sglangctl.state.paths import Paths
from sglangctl.switch import unread
from sglangctl.switch.journal import look_at, recorded
from sglangctl.switch.takeover import Takeover
from sglangctl.switch.transaction import Wanted, begin, commit, detach, resume
from sglangctl.systemd.unit_names import SWITCH


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("name", help="the engine's name")
    action = parser.add_mutually_exclusive_group(required=True)
    action.add_argument("--to", metavar="DIGEST", help="the staged release to put live")
    action.add_argument(
        "--commit",
        metavar="DIGEST",
        help="this release is known to be good, or differs from a good one in what no process has read",
    )
    action.add_argument(
        "--resume",
        action="store_true",
        help="of an interrupted switch: bring up the side that counts",
    )
    action.add_argument("--follow", metavar="TICKET", help="print the steps of a detached switch")
    parser.add_argument("--config", metavar="FILE", help="of --to: the engine's configuration")
    parser.add_argument(
        "--seen",
        metavar="TIME",
        help="of --to and --commit: the state that the caller's decision is based on",
    )
    parser.add_argument("--policy", choices=free.POLICIES, default="declared")
    parser.add_argument("--reason", default="", help="why, for the record")
    parser.add_argument(
        "--was", metavar="NAME", help="of --to: the engine's name before, which hands over to it"
    )
    parser.add_argument(
        "--gone",
        metavar="NAME",
        action="append",
        default=[],
        help="of --to: an engine that is no longer in the inventory, stopped where it is in the way",
    )
    parser.add_argument(
        "--unproven",
        action="store_true",
        help="of --to: ask the staged engine's parser and imports, unless its launch gate shows both",
    )
    parser.add_argument("--detach", metavar="TICKET", help=f"run as {SWITCH}, under this name")
    follow.add_arguments(parser)


def run(args: argparse.Namespace) -> int:
    paths = Paths()
    # Before anything is written: a name that was mistyped leaves nothing behind.
    require_known(args.name, paths)
    if args.commit:
        unread.put_live(args.name, args.commit, args.seen, paths)
        commit(args.name, args.commit, paths)
    elif args.follow:
        look = partial(look_at, args.name, args.follow, args.offset or 0, paths)
        follow.write(follow.poll(look, args.wait))
    elif args.resume:
        with recorded(args.name, paths) as record:
            resume(args.name, paths, record)
    else:
        config = None if args.config is None else read(args.config)
        takes = Takeover(args.was, tuple(args.gone))
        wanted = Wanted(
            args.name,
            args.to,
            args.policy,
            args.reason,
            args.seen,
            config,
            takes,
            staged.failures if args.unproven else None,
        )
        if args.detach:
            detach(wanted, args.detach, paths)
        else:
            with recorded(args.name, paths) as record:
                begin(wanted, paths, record)
    return 0


def read(source: str) -> str:
    """The text of a file, or of standard input for `-`."""
    return sys.stdin.read() if source == "-" else Path(source).read_text(encoding="utf-8")
