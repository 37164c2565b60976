"""Thirty starts of the real engine on a busy machine: the watch calls none of them anything but
starting, serving and ready.

A child that has just been forked has its parent's title for a moment, and was taken for a rank that
died: in 2 of about 16 starts. So one start proves nothing.
"""

from __future__ import annotations

import os
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest

from sglangctl.diagnosis.outcomes import PROVEN, SERVED
from tests.container.engine_unit import Event, poll
from tests.container.real_engine import RealEngine
from tests.hosts.host import Host

STARTS = 30
LIMIT_S = 900.0
"""For one start; as many seconds as the engine's own limit."""
BUSY = 2.0
"""Runnable processes for each core, at least: every sample is late, and titles change under it."""
GOOD = {"pending", *SERVED}

pytestmark = [pytest.mark.real, pytest.mark.timeout(int(STARTS * LIMIT_S))]


def test_no_false_alarm_in_thirty_starts(
    host: Host, engine: RealEngine, tmp_path: Path, record_property: Callable[[str, object], None]
) -> None:
    engine.configure()
    outcomes: Counter[str] = Counter()
    seconds, loads = [], []
    for number in range(1, STARTS + 1):
        loads.append(keep_busy(host))
        begun = time.monotonic()
        engine.start()
        last = poll(lambda: ended(engine.verdicts()), LIMIT_S, step_s=2.0)
        seconds.append(round(time.monotonic() - begun, 1))
        events = engine.events()
        alarms = [one for one in events if one["kind"] == "verdict" and one["outcome"] not in GOOD]
        kept = tmp_path / f"start-{number}.jsonl"
        kept.write_text(engine.dump())
        assert not alarms, f"start {number}: {alarms[0]}: {kept}"
        assert last, f"start {number} was not proven within {LIMIT_S:g} s: {kept}"
        # `sglangctl wait`, ExecStartPost of the unit, let this start through.
        assert poll(lambda: engine.show("ActiveState") == "active", 30), kept
        assert engine.show("NRestarts") == "0", kept
        outcomes[last["outcome"]] += 1
        engine.stop()
        record_property("starts", number)
        record_property("false_alarms", 0)
        record_property("outcomes", dict(outcomes))
        record_property("seconds", {"shortest": min(seconds), "longest": max(seconds)})
        record_property("load", {"least": min(loads), "most": max(loads)})


def ended(verdicts: list[Event]) -> Event | None:
    """The first verdict that is proven, or that no good start has."""
    return next(
        (one for one in verdicts if one["outcome"] in PROVEN or one["outcome"] not in GOOD), None
    )


def keep_busy(host: Host) -> float:
    """The machine's load; where that is too low, processes that burn a core for this start."""
    load = os.getloadavg()[0]
    missing = round(BUSY * (os.cpu_count() or 1) - load)
    for number in range(missing):
        host.exec(
            "systemd-run", "--quiet", "--collect", f"--unit=burn-{number}-{time.time_ns()}",
            f"--property=RuntimeMaxSec={LIMIT_S / 10:g}", "sh", "-c", "while :; do :; done",
        )  # fmt: skip
    return round(load, 1)
