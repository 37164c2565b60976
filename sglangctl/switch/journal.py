"""The switch's own journal: every step of it, its end, and how it is followed from elsewhere."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from sglangctl.state import follow
from sglangctl.state.journal import Event, Writer
from sglangctl.state.paths import Paths
from sglangctl.switch import unit
from sglangctl.util import os_errors
from sglangctl.util.errors import Failed
from sglangctl.util.terminal import escaped

KEPT = 20
"""Journals of switches that are kept, an engine."""


class Record:
    """The switch's own journal: what is said goes to the terminal too."""

    def __init__(self, path: Path) -> None:
        self._writer = Writer(path, mode=0o600)
        self._began = time.monotonic()

    def emit(self, kind: str, **fields: Any) -> None:
        """Write one event."""
        self._writer.write(time.monotonic() - self._began, kind, **fields)

    def say(self, line: str) -> None:
        line = escaped(line)
        self.emit("step", name="switch", text=line)
        # The journal has it: a terminal that is gone must not end a switch half-way.
        with suppress(OSError):
            print(line, flush=True)

    def end(self, status: int, text: str) -> None:
        """The last event: what a follower takes for this command's exit status."""
        self.emit("step", name="end", status=status, text=text)
        self._writer.close()


@contextmanager
def recorded(name: str, paths: Paths) -> Iterator[Record]:
    """Keep a journal of this switch of engine `name`, its end included, whatever the end is."""
    ticket = os.environ.get("SGLANGCTL_SWITCH") or f"{now()}-{os.getpid()}"
    journal = journal_of(name, ticket, paths)
    journal.parent.mkdir(mode=0o755, parents=True, exist_ok=True)
    for old in sorted(journal.parent.glob("*.jsonl"))[:-KEPT]:
        old.unlink(missing_ok=True)
        old.with_suffix(".json").unlink(missing_ok=True)
    record = Record(journal)
    status, text = 1, "interrupted"
    try:
        yield record
        status, text = 0, "done"
    except Failed as error:
        status, text = error.status, str(error)
        raise
    except OSError as error:
        text = os_errors.sentence(error)
        raise
    except Exception as error:
        # Who follows sees the journal only: an internal error is written there too.
        text = f"internal error: {error!r}; please report it, with: sglangctl bundle {name}"
        raise
    finally:
        record.end(status, text)


def look_at(name: str, ticket: str, offset: int, paths: Paths) -> follow.Answer:
    """What is new in the journal of a switch from byte `offset` on, and whether it has ended."""
    return follow.look_at_task(
        ticket, journal_of(name, ticket, paths), offset, unit.active, exit_status
    )


def exit_status(event: Event) -> int | None:
    """Of the last event of a switch; None for any other."""
    if event.get("name") != "end":
        return None
    status = event.get("status")
    return status if isinstance(status, int) else 1


def journal_of(name: str, ticket: str, paths: Paths) -> Path:
    return paths.engine_state(name) / "switches" / f"{unit.checked_ticket(ticket)}.jsonl"


def now() -> str:
    """UTC, as a file name: 20261129T174500Z."""
    return time.strftime("%Y%m%dT%H%M%SZ", time.gmtime())
