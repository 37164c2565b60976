"""What the watch saw of an engine's start, one JSON object a line (-f follows it, also into
the next start). With --from it answers one question of the controller: lines from that byte on as
soon as there are any, at the latest after --wait seconds, then the last line

    @ START OFFSET OUTCOME

START and OFFSET are what the next question must name, so that nothing is lost or seen twice; OUTCOME
is the last verdict's now, `-` where there is none. Before a first start it is `@ - 0 -`.
Exit status: 0, 2 when the journal cannot be read.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from sglangctl.startup import render
from sglangctl.state import follow, starts
from sglangctl.state.config import require_known
from sglangctl.state.paths import Paths
from sglangctl.systemd.unit_names import watch_unit
from sglangctl.util.errors import Unusable
from sglangctl.util.terminal import escaped


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("name", metavar="NAME", help="the engine")
    parser.add_argument(
        "-f", "--follow", action="store_true", help="print new lines as they are written"
    )
    parser.add_argument("-n", "--lines", type=int, metavar="N", help="only the last N lines")
    parser.add_argument("--start", metavar="START", help="a start other than the last one")
    parser.add_argument("--list", action="store_true", help="the starts, each with its outcome")
    follow.add_arguments(parser)
    parser.add_argument(
        "--unit",
        action="store_true",
        help="of --from: before the last line, `= {...}`: what systemd says of the unit and of the watch; "
        "without --start, follow the start that the unit is in (not before it is in one)",
    )


def run(args: argparse.Namespace) -> int:
    paths = Paths()
    require_known(args.name, paths)
    start = starts.checked_folder(args.start) if args.start else None
    if args.list:
        return print_list(args.name, paths)
    if args.offset is not None:
        return print_poll(args, start, paths)
    return print_journal(args, start, paths)


def print_list(name: str, paths: Paths) -> int:
    for start in starts.names(paths.starts(name)):
        verdict = starts.last_verdict(paths.starts(name) / start / starts.JOURNAL)
        cause = (verdict or {}).get("cause")
        parts = [starts.outcome_of(verdict), *([escaped(str(cause))] if cause else [])]
        by = (verdict or {}).get("stopped_by")
        print(start, *([render.stopped(by)] if isinstance(by, str) else parts))
    return 0


def print_poll(args: argparse.Namespace, start: str | None, paths: Paths) -> int:
    if args.offset < 0 or (args.offset and start is None):
        raise Unusable("--from must be 0, or an OFFSET with the --start that it belongs to")

    def look() -> follow.Answer:
        return follow.look_at_start(args.name, start, args.offset, paths, unit=args.unit)

    every_s = follow.LOOK_UNIT_S if args.unit else follow.LOOK_S
    follow.write(follow.poll(look, args.wait, every_s))
    return 0


def print_journal(args: argparse.Namespace, start: str | None, paths: Paths) -> int:
    if start is not None and start not in starts.names(paths.starts(args.name)):
        raise Unusable(
            f"{args.name} has no start {start}: sglangctl journal {args.name} --list shows them"
        )
    start = start or starts.latest(args.name, paths)
    if start is None and not args.follow:
        raise Unusable(
            f"{args.name} has no journal: it has no recorded start, "
            f"see: systemctl status {watch_unit(args.name)}"
        )
    offset = 0
    if start is not None and args.lines is not None:
        offset = offset_of_last(paths.starts(args.name) / start / starts.JOURNAL, args.lines)

    def look() -> follow.Answer:
        return follow.look_at_start(args.name, start, offset, paths, go_on=args.follow)

    while True:
        answer = follow.poll(look, 1.0 if args.follow else 0.0)
        if args.follow and answer.source != start:
            print(f"-- start {answer.source} --", file=sys.stderr, flush=True)
        follow.emit(answer.lines)
        start, offset = answer.source, answer.offset
        if not args.follow and not answer.lines:
            return 0


def offset_of_last(file: Path, count: int) -> int:
    """The byte at which the last `count` complete lines of a journal begin."""
    dropped = 0
    for number, line in enumerate(starts.lines_backwards(file)):
        if number >= count:
            dropped += len(line) + 1
    return dropped
