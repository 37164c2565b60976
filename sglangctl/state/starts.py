"""The start folders of an engine: `starts/<UTC time>-<invocation id>/journal.jsonl`.

Their names sort by time, as far as the clock was right; the link `latest` names the newest one. Only
the watch writes them; everything here reads.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from sglangctl.state import journal
from sglangctl.state.paths import Paths
from sglangctl.systemd.unit import Unit
from sglangctl.util import lazy_re
from sglangctl.util.errors import Unusable

FOLDER = lazy_re.compile(r"[0-9A-Za-z][0-9A-Za-z:._+-]{0,127}")
"""What a start's name may look like when it comes from outside: it becomes a path."""
JOURNAL = "journal.jsonl"
BLOCK = 1 << 16
STAYS = ("active", "reloading", "deactivating")
"""ActiveStates of a run that is there until a queued job changes it."""


def checked_folder(name: str) -> str:
    """`name` if it can be a start's folder; Unusable for anything else."""
    if not FOLDER.fullmatch(name) or name == "latest":
        raise Unusable(f"{name!r} is not the name of a start")
    return name


def names(folder: Path) -> list[str]:
    """All starts in `folder` (Paths.starts), oldest first; empty when there is none.

    By their names; but the one that the link `latest` names is the last one, also where the clock was
    put back since the one before. PermissionError passes through: "no start" would be a lie.
    """
    try:
        entries = os.listdir(folder)
    except FileNotFoundError:
        return []
    found = sorted(
        entry
        for entry in entries
        if FOLDER.fullmatch(entry) and entry != "latest" and (folder / entry / JOURNAL).is_file()
    )
    newest = _linked(folder)
    if newest in found:
        found.remove(newest)
        found.append(newest)
    return found


def _linked(folder: Path) -> str:
    """The start that the watch opened last, "" where it is not to be found out."""
    try:
        return os.readlink(folder / "latest")
    except OSError:
        return ""


def latest(name: str, paths: Paths) -> str | None:
    """The newest start of an engine, None before its first."""
    found = names(paths.starts(name))
    return found[-1] if found else None


def after(name: str, start: str, paths: Paths) -> str | None:
    """The start that came next after `start`, None when that was the last one."""
    found = names(paths.starts(name))
    if start in found:
        return next(iter(found[found.index(start) + 1 :]), None)
    return next((other for other in found if other > start), None)


def of_invocation(name: str, invocation_id: str, paths: Paths) -> str | None:
    """The start with this systemd invocation id (its folder's name ends with it)."""
    if not invocation_id:
        return None
    found = [start for start in names(paths.starts(name)) if start.endswith("-" + invocation_id)]
    return found[-1] if found else None


def of_unit(name: str, unit: Unit | None, paths: Paths) -> str | None:
    """The start that the engine's unit is in, None while there is none; without systemd (None), or
    of a unit that systemd has forgotten, the latest."""
    if unit is None or (not unit.invocation_id and unit.settled):
        return latest(name, paths)
    if not unit.settled:
        return None
    return of_invocation(name, unit.invocation_id, paths)


def to_tell_of(name: str, unit: Unit | None, paths: Paths) -> str | None:
    """The same, but for a run that a queued job is about to end: that one still."""
    if unit is not None and unit.job and unit.active in STAYS:
        return of_invocation(name, unit.invocation_id, paths)
    return of_unit(name, unit, paths)


def last_verdict(file: Path) -> journal.Event | None:
    """The last `verdict` event of a journal, found from its end (a journal may have 64 MiB)."""
    return last_event(file, "verdict")


def verdicts(file: Path) -> Iterator[journal.Event]:
    """All `verdict` events of a journal, in its order."""
    with open(file, "rb") as lines:
        for line in lines:
            event = journal.parse(line) if b'"verdict"' in line else None
            if event is not None and event["kind"] == "verdict":
                yield event


def last_event(file: Path, kind: str = "") -> journal.Event | None:
    """The last event of a kind ("": of any), found from the journal's end."""
    wanted = f'"{kind}"'.encode() if kind else b""
    for line in lines_backwards(file):
        event = journal.parse(line) if wanted in line else None
        if event is not None and kind in ("", event["kind"]):
            return event
    return None


def outcome_of(event: dict[str, Any] | None) -> str:
    """A verdict's outcome as one word, `-` where there is none."""
    outcome = event.get("outcome") if event else None
    return outcome if isinstance(outcome, str) and re.fullmatch("[a-z-]{1,40}", outcome) else "-"


def lines_backwards(file: Path) -> Iterator[bytes]:
    """The complete lines of a file, last one first, without their newline.

    A line that is still being written (no newline yet) is left out.
    """
    with open(file, "rb") as source:
        position = source.seek(0, os.SEEK_END)
        rest = b""
        ended = False
        while position > 0:
            size = min(BLOCK, position)
            position -= size
            source.seek(position)
            rest = source.read(size) + rest
            if not ended:
                end = rest.rfind(b"\n")
                if end < 0:
                    continue
                rest, ended = rest[:end], True
            pieces = rest.split(b"\n")
            rest = pieces[0]
            yield from reversed(pieces[1:])
        if ended:
            yield rest
