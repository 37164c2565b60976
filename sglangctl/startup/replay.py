"""Judge a recorded journal again."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from sglangctl.startup.assessment import Assessment
from sglangctl.startup.fold import Startup
from sglangctl.startup.ranks import STOPPED_S
from sglangctl.state import journal


def changes(events: Iterable[journal.Event]) -> Iterator[Assessment]:
    """The first assessment and every one whose phase, outcome or cause differs from the last.

    `injected` and recorded `verdict` events are skipped: only what the watch sees counts. After
    the last event the fold gets the time that it still waits for (at most three seconds). What it
    says then carries the last event's t.
    """
    startup = Startup()
    last: tuple[str, str, str | None] | None = None
    t: float | None = None
    for event in events:
        if event["kind"] in ("injected", "verdict"):
            continue
        assessment = startup.feed(event)
        t = assessment.t
        key = (assessment.phase, assessment.outcome, assessment.cause)
        if key != last:
            last = key
            yield assessment
    if t is None or (startup.failures.crash is None and startup.stopped_t is None):
        return
    end = t + max(startup.limits.failed_cause_s, STOPPED_S)
    while (due := startup.due) is not None and due <= end:
        assessment = startup.tick(due)
        if (assessment.phase, assessment.outcome, assessment.cause) != last:
            yield Assessment(**{**vars(assessment), "t": t})
            return
