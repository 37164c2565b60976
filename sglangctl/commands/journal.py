"""What the watch saw of an engine's start, one JSON object a line (-f follows it, also into
the next start). With --follow-from it answers one long poll of the controller: lines from that
byte on as soon as there are any, at the latest after --wait seconds, then the last line

    @ START OFFSET OUTCOME

START and OFFSET are what the next poll must name, so that nothing is lost or seen twice; OUTCOME
is the last verdict's now, `-` where there is none. Before a first start it is `@ - 0 -`.
Exit status: 0, 2 when the journal cannot be read.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sglangctl.startup import render
from sglangctl.state import starts
from sglangctl.state.config import ConfigError, load_engine, require_known
from sglangctl.state.paths import Paths
from sglangctl.systemd.unit import Unit, with_watch
from sglangctl.systemd.unit_names import watch_unit
from sglangctl.util import os_errors
from sglangctl.util.terminal import harmless

MAX_BYTES = 1 << 20
"""Of one reply; a journal of 64 MiB comes in pieces. A longer line comes whole."""
LOOK_S = 0.1
LOOK_UNIT_S = 0.5
"""systemctl costs 10 ms and more."""
GATHER_S = 0.2
"""After the first new line: events come in bursts, and a reply costs a round trip."""


@dataclass(frozen=True)
class Reply:
    """One poll's answer: the lines of `start` up to byte `offset`, and the last outcome."""

    start: str | None
    offset: int
    lines: list[bytes]
    outcome: str
    unit: dict[str, Any] | None = None
    """What systemd says, where that was asked for: see `told`."""

    @property
    def position(self) -> str:
        """The last line of a long poll."""
        return f"@ {self.start or '-'} {self.offset} {self.outcome}"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("name", metavar="NAME", help="the engine")
    parser.add_argument("-f", "--follow", action="store_true", help="go on with what is written")
    parser.add_argument("-n", "--lines", type=int, metavar="N", help="only the last N lines")
    parser.add_argument("--start", metavar="START", help="another start than the last one")
    parser.add_argument("--list", action="store_true", help="the starts, each with its outcome")
    poll = parser.add_argument_group("one long poll")
    poll.add_argument("--follow-from", type=int, metavar="OFFSET", help="byte to go on from")
    poll.add_argument("--wait", type=float, default=0.0, metavar="SECONDS")
    poll.add_argument(
        "--unit",
        action="store_true",
        help="before the last line, `= {...}`: what systemd says of the unit and of the watch; "
        "without --start, follow the start that the unit is in (not before it is in one)",
    )


def run(args: argparse.Namespace) -> int:
    paths = Paths()
    try:
        require_known(args.name, paths)
        start = starts.checked_folder(args.start) if args.start else None
        if args.list:
            return print_list(args.name, paths)
        if args.follow_from is not None:
            return print_poll(args, start, paths)
        return print_journal(args, start, paths)
    except BrokenPipeError:
        raise
    except OSError as error:
        return refuse(os_errors.sentence(error))
    except (ValueError, ConfigError) as error:
        return refuse(str(error))


def refuse(sentence: str) -> int:
    print(f"sglangctl journal: {harmless(sentence)}", file=sys.stderr)
    return 2


def print_list(name: str, paths: Paths) -> int:
    for start in starts.names(paths.starts(name)):
        verdict = starts.last_verdict(paths.starts(name) / start / starts.JOURNAL)
        cause = (verdict or {}).get("cause")
        words = [starts.outcome_of(verdict), *([harmless(str(cause))] if cause else [])]
        by = (verdict or {}).get("stopped_by")
        print(start, *([render.stopped(by)] if isinstance(by, str) else words))
    return 0


def print_poll(args: argparse.Namespace, start: str | None, paths: Paths) -> int:
    if args.follow_from < 0 or (args.follow_from and start is None):
        return refuse("--follow-from must be 0, or an OFFSET with the --start that it belongs to")
    reply = poll(args.name, start, args.follow_from, args.wait, paths, unit=args.unit)
    emit(reply.lines)
    if args.unit:
        print("= " + json.dumps(reply.unit))
    print(reply.position, flush=True)
    return 0


def print_journal(args: argparse.Namespace, start: str | None, paths: Paths) -> int:
    if start is not None and start not in starts.names(paths.starts(args.name)):
        return refuse(
            f"{args.name} has no start {start}: sglangctl journal {args.name} --list shows them"
        )
    start = start or starts.latest(args.name, paths)
    if start is None and not args.follow:
        return refuse(
            f"{args.name} has no journal: it was never started under its watch, "
            f"see: systemctl status {watch_unit(args.name)}"
        )
    offset = 0
    if start is not None and args.lines is not None:
        offset = offset_of_last(paths.starts(args.name) / start / starts.JOURNAL, args.lines)
    while True:
        reply = poll(
            args.name, start, offset, 1.0 if args.follow else 0.0, paths, go_on=args.follow
        )
        if args.follow and reply.start != start:
            print(f"-- start {reply.start} --", file=sys.stderr, flush=True)
        emit(reply.lines)
        start, offset = reply.start, reply.offset
        if not args.follow and not reply.lines:
            return 0


def emit(lines: list[bytes]) -> None:
    for line in lines:
        sys.stdout.write(harmless(line.decode("utf-8", "backslashreplace")) + "\n")
    sys.stdout.flush()


def poll(
    name: str,
    start: str | None,
    offset: int,
    wait_s: float,
    paths: Paths,
    go_on: bool = True,
    unit: bool = False,
) -> Reply:
    """Complete lines of `start` (None: the latest) from byte `offset` on, waiting up to `wait_s`.

    `go_on`: at the end of a start that has a successor, go on at the successor's first byte.
    `unit`: None is the start that the unit is in; a unit that is down is
    answered at once.
    OSError when the journal cannot be read; ValueError for an offset behind its end.
    """
    end = time.monotonic() + wait_s
    engine_unit = load_engine(name, paths).unit if unit else ""
    seen: tuple[Unit, Unit] | None = None
    while True:
        if unit:
            seen = with_watch(name, engine_unit)
        start = start or starts.of_unit(name, seen[0] if seen else None, paths)
        lines: list[bytes] = []
        if start is not None:
            # Asked for before reading: what is written to `start` until then is read below.
            successor = starts.after(name, start, paths) if go_on else None
            try:
                lines = read_lines(name, start, offset, paths)
            except FileNotFoundError:
                # Only so many starts are kept: this one is gone, its successors are not.
                if successor is None:
                    raise
            if lines:
                pause = min(GATHER_S, end - time.monotonic())
                if pause > 0 and sum(map(len, lines)) < MAX_BYTES:
                    time.sleep(pause)
                    lines = read_lines(name, start, offset, paths)
            elif successor is not None:
                start, offset = successor, 0
                continue
        if lines or time.monotonic() >= end or (seen and seen[0].down):
            return Reply(
                start,
                offset + sum(len(line) + 1 for line in lines),
                lines,
                outcome_now(name, start, paths),
                told(*seen) if seen else None,
            )
        time.sleep(min(LOOK_UNIT_S if unit else LOOK_S, max(0.0, end - time.monotonic())))


def told(unit: Unit, watch: Unit) -> dict[str, Any]:
    """The object of a poll's `=` line."""
    return {
        "active": unit.active,
        "sub": unit.sub,
        "result": unit.result,
        "invocation_id": unit.invocation_id,
        "restarts": unit.restarts,
        "job": unit.job,
        "watch": watch.active,
        "exit_status": unit.exit_status,
    }


def read_lines(name: str, start: str, offset: int, paths: Paths) -> list[bytes]:
    """The complete lines from `offset` on, without newlines: about MAX_BYTES, at least one."""
    with open(paths.starts(name) / start / starts.JOURNAL, "rb") as file:
        size = file.seek(0, 2)
        if offset > size:
            raise ValueError(
                f"the journal of {start} has {size} bytes and cannot be followed from {offset}: "
                "follow it again from 0"
            )
        file.seek(offset)
        data = file.read(MAX_BYTES)
        while data and b"\n" not in data:
            more = file.read(MAX_BYTES)
            if not more:
                return []
            data += more
    return data[: data.rfind(b"\n")].split(b"\n") if data else []


def outcome_now(name: str, start: str | None, paths: Paths) -> str:
    if start is None:
        return "-"
    return starts.outcome_of(starts.last_verdict(paths.starts(name) / start / starts.JOURNAL))


def offset_of_last(file: Path, count: int) -> int:
    """The byte at which the last `count` complete lines of a journal begin."""
    dropped = 0
    for number, line in enumerate(starts.lines_backwards(file)):
        if number >= count:
            dropped += len(line) + 1
    return dropped
