"""New lines of a journal from a byte offset on, for a follower on another machine.

The one protocol of `journal`, `switch --follow` and `kernel build --follow` with --from and --wait:
complete lines as they were written, as soon as there are any or at the latest after --wait seconds;
for an engine with --unit a line `= {...}`; then the last line

    @ SOURCE OFFSET STATUS

SOURCE and OFFSET belong to the next question: nothing is lost or repeated, also where the same
question is asked twice because its answer was lost. STATUS is one word. Of a task: `-` while it
runs, its exit status once it has ended, `gone` where it ended without one (killed, a reboot). Of
a start: the last outcome, `-` before the first one.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sglangctl.state import journal, starts
from sglangctl.state.config import load_engine
from sglangctl.state.paths import Paths
from sglangctl.systemd.unit import Unit, with_watch
from sglangctl.util.errors import Unusable
from sglangctl.util.terminal import escaped

MAX_BYTES = 1 << 20
"""Of one answer; a journal of 64 MiB comes in pieces. A longer line comes whole."""
LOOK_S = 0.1
LOOK_UNIT_S = 0.5
"""systemctl costs 10 ms and more."""
GATHER_S = 0.2
"""After the first new line: events come in bursts, and an answer costs a round trip."""
GONE = "gone"


@dataclass(frozen=True)
class Answer:
    """The lines of `source` up to byte `offset`."""

    source: str | None
    offset: int
    lines: list[bytes]
    status: str = "-"
    unit: str | None = None
    """JSON of `unit_fields`, where it was asked for."""
    final: bool = False
    """No more lines will come."""

    @property
    def position(self) -> str:
        """The last line."""
        return f"@ {self.source or '-'} {self.offset} {self.status}"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    poll = parser.add_argument_group(
        "one answer to a follower: new lines, then @ SOURCE OFFSET STATUS"
    )
    poll.add_argument(
        "--from", dest="offset", type=int, metavar="OFFSET", help="byte to go on from"
    )
    poll.add_argument("--wait", type=float, default=0.0, metavar="SECONDS", help="for a new line")


def poll(look: Callable[[], Answer], wait_s: float, every_s: float = LOOK_S) -> Answer:
    """The first answer of `look` that has lines or is final, at the latest after `wait_s`.

    `look` always answers from the same position; it is called again to gather a burst.
    """
    end = time.monotonic() + wait_s
    while True:
        answer = look()
        left = end - time.monotonic()
        if answer.lines and left > 0 and sum(map(len, answer.lines)) < MAX_BYTES:
            time.sleep(min(GATHER_S, left))
            return look()
        if answer.lines or answer.final or left <= 0:
            return answer
        time.sleep(min(every_s, left))


def write(answer: Answer) -> None:
    """Print it."""
    emit(answer.lines)
    if answer.unit is not None:
        print(f"= {answer.unit}")
    print(answer.position, flush=True)


def emit(lines: list[bytes]) -> None:
    for line in lines:
        sys.stdout.write(escaped(line.decode("utf-8", "backslashreplace")) + "\n")
    sys.stdout.flush()


def look_at_start(
    name: str,
    start: str | None,
    offset: int,
    paths: Paths,
    go_on: bool = True,
    unit: bool = False,
) -> Answer:
    """Complete lines of an engine's `start` (None: the latest) from byte `offset` on.

    `go_on`: at the end of a start that has a successor, go on at the successor's first byte.
    `unit`: None is the start that the unit is in, and a unit that is down is final.
    OSError when the journal cannot be read; Unusable for an offset behind its end.
    """
    seen = with_watch(name, load_engine(name, paths).unit) if unit else None
    told = json.dumps(unit_fields(*seen) if seen else None) if unit else None
    down = seen is not None and seen[0].down
    start = start or starts.of_unit(name, seen[0] if seen else None, paths)
    while start is not None:
        # Asked for before reading: what is written to `start` until then is read below.
        successor = starts.after(name, start, paths) if go_on else None
        file = paths.starts(name) / start / starts.JOURNAL
        try:
            lines = read_lines(file, offset)
        except FileNotFoundError:
            # Only so many starts are kept: this one is gone, its successors are not.
            if successor is None:
                raise
            lines = []
        if lines or successor is None:
            outcome = starts.outcome_of(starts.last_verdict(file))
            return Answer(start, offset + length(lines), lines, outcome, told, down)
        start, offset = successor, 0
    return Answer(None, offset, [], unit=told, final=down)


def unit_fields(unit: Unit, watch: Unit) -> dict[str, Any]:
    """The object of the line `= {...}`."""
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


def look_at_task(
    source: str,
    file: Path,
    offset: int,
    runs: Callable[[], bool],
    exit_of: Callable[[journal.Event], int | None],
) -> Answer:
    """Complete lines of a task's journal from byte `offset` on, and whether it has ended.

    `exit_of`: the exit status of an event that is the task's last word, None for any other.
    """
    alive = runs()  # asked for before reading: an end that comes in between is not lost
    try:
        # A task that was started again has a new journal: what was read of the old one is past.
        offset = offset if offset <= file.stat().st_size else 0
        lines = read_lines(file, offset)
        word = journal.parse(lines[-1]) if lines else starts.last_event(file)
    except FileNotFoundError:
        lines, word = [], None
    exit_status = exit_of(word) if word else None
    runs_on = "-" if alive or lines else GONE
    status = runs_on if exit_status is None else str(exit_status)
    return Answer(source, offset + length(lines), lines, status, final=status != "-")


def length(lines: list[bytes]) -> int:
    """In the file: with their newlines."""
    return sum(len(line) + 1 for line in lines)


def read_lines(file: Path, offset: int) -> list[bytes]:
    """The complete lines from `offset` on, without newlines: about MAX_BYTES, at least one."""
    with open(file, "rb") as source:
        size = source.seek(0, 2)
        if offset > size:
            raise Unusable(
                f"{file} has {size} bytes and cannot be followed from {offset}: "
                "follow it again from 0"
            )
        source.seek(offset)
        data = source.read(MAX_BYTES)
        while data and b"\n" not in data:
            more = source.read(MAX_BYTES)
            if not more:
                return []
            data += more
    return data[: data.rfind(b"\n")].split(b"\n") if data else []
