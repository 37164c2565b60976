"""The switch's own journal: every step of it, its end, and how it is followed from elsewhere."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from sglangctl.state.config import ConfigError
from sglangctl.state.journal import Writer
from sglangctl.state.lock import Busy
from sglangctl.state.paths import Paths
from sglangctl.state.release import ReleaseError
from sglangctl.state.switch_error import SwitchError
from sglangctl.switch import unit
from sglangctl.systemd.unit_names import SWITCH
from sglangctl.util.terminal import harmless

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
        line = harmless(line)
        self.emit("step", name="switch", text=line)
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
    except SwitchError as error:
        status, text = error.status, str(error)
        raise
    except (Busy, ConfigError, ReleaseError, OSError) as error:
        text = str(error)
        raise
    except Exception as error:
        # Who follows sees the journal only: a defect of ours is named there too.
        text = f"internal error: {error!r}; please report it, with: sglangctl bundle {name}"
        raise
    finally:
        record.end(status, text)


def followed(name: str, ticket: str, offset: int, wait_s: float, paths: Paths) -> list[str]:
    """New steps of a switch as lines, then "@ OFFSET STATUS"; waits for them up to `wait_s`."""
    journal = journal_of(name, ticket, paths)
    deadline = time.monotonic() + wait_s
    while True:
        active = unit.active()
        steps, offset = steps_from(journal, offset)
        lines = [str(step.get("text")) for step in steps if step.get("name") == "switch"]
        end = next((step for step in steps if step.get("name") == "end"), None)
        if end is not None:
            if end.get("status") != 0:
                lines.append(str(end.get("text")))
            return [*lines, f"@ {offset} {end.get('status', 1)}"]
        if not active and not steps:
            lines = [
                f"the switch ended without a word (killed?): journalctl -u {SWITCH}; "
                f"then: sglangctl switch {name} --resume"
            ]
            return [*lines, f"@ {offset} 1"]
        if lines or time.monotonic() >= deadline:
            return [*lines, f"@ {offset} -"]
        time.sleep(0.2)


def journal_of(name: str, ticket: str, paths: Paths) -> Path:
    return paths.engine_state(name) / "switches" / f"{unit.checked_ticket(ticket)}.jsonl"


def steps_from(journal: Path, offset: int) -> tuple[list[dict[str, Any]], int]:
    """The complete lines from byte `offset` on, and the offset after them."""
    try:
        with open(journal, "rb") as file:
            file.seek(offset)
            data = file.read()
    except FileNotFoundError:
        return [], offset
    whole = data[: data.rfind(b"\n") + 1]
    return [json.loads(line) for line in whole.splitlines()], offset + len(whole)


def now() -> str:
    """UTC, as a file name: 20261129T174500Z."""
    return time.strftime("%Y%m%dT%H%M%SZ", time.gmtime())
