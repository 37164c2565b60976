"""Follow a command on a host: the one reader of `sglangctl ... --from OFFSET --wait SECONDS`.

The protocol is in sglangctl/state/follow.py. Each question names where the answer before it ended,
so that one whose answer was lost with the link is asked again, and nothing is lost or told twice.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from roles.remote.failing import HostFailed
from roles.remote.link import Link
from sglangctl.state import journal
from sglangctl.util.values import digits

TASK_WAIT_S = 10.0
"""Of one question about a task."""
RUNS = "-"


class CannotFollow(Exception):
    """The host's answer cannot be used; the text is one sentence."""


@dataclass(frozen=True)
class Reply:
    """One answer: the events up to byte `offset` of `source`."""

    events: list[journal.Event]
    source: str | None
    """A start, a switch's ticket or a build's key; None before a first start."""
    offset: int
    status: str
    """Of a task: RUNS, its exit status, or `gone`. Of a start: its last outcome."""
    unit: dict[str, Any] | None
    """Of a start: what systemd says of its unit, where it is asked."""


def parse(lines: Sequence[str]) -> Reply:
    """CannotFollow when the last line is missing: then the answer was cut off."""
    words = lines[-1].split() if lines else []
    body = list(lines[:-1])
    try:
        mark, source, place, status = words
        offset = digits(place)
        if mark != "@" or offset is None:
            raise ValueError
        unit = json.loads(body.pop()[2:]) if body and body[-1].startswith("= ") else None
    except ValueError:
        raise CannotFollow(
            "sglangctl on the host does not answer as it should: deploy again"
        ) from None
    return Reply(
        events=list(journal.events(body)),
        source=None if source == "-" else source,
        offset=offset,
        status=status,
        unit=unit if isinstance(unit, dict) else None,
    )


def ask(link: Link, argv: Sequence[str], offset: int, wait_s: float) -> Reply:
    """One question; HostFailed with sglangctl's own message, CannotFollow, LinkLost."""
    answer = link.run(*argv, f"--from={offset}", f"--wait={wait_s:g}", wait_s=wait_s)
    return parse(answer.needed("sglangctl ended without an answer").lines)


def task(link: Link, argv: Sequence[str], each: Callable[[journal.Event], None]) -> str:
    """Follow a switch or a build to its end, `each` event once; its status. HostFailed, LinkLost."""
    offset, status = 0, RUNS
    while status == RUNS:
        try:
            reply = ask(link, argv, offset, TASK_WAIT_S)
        except CannotFollow as error:
            raise HostFailed(str(error)) from None
        for event in reply.events:
            each(event)
        offset, status = reply.offset, reply.status
    return status
