"""Thirty starts of the real engine on a busy machine: the watch calls none of them anything but
starting, serving and ready.

A child that has just been forked has its parent's title for a moment, and was taken for a rank that
died: in 2 of about 16 starts. So one start proves nothing. Three engines start at once: on two
cores every sample is late, and titles change under it.
"""

from __future__ import annotations

import os
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from sglangctl.diagnosis.outcomes import PROVEN, SERVED
from tests.container.engine_unit import Event, poll
from tests.container.real_engine import RealEngine
from tests.hosts.host import Host

ROUNDS, AT_ONCE = 10, 3
LIMIT_S = 1800.0
"""For one start, the engine's own limit too."""
GOOD = {"pending", *SERVED}

pytestmark = [pytest.mark.real, pytest.mark.timeout(int(ROUNDS * LIMIT_S))]


@pytest.fixture
def engines(host: Host, tmp_path: Path) -> Iterator[list[RealEngine]]:
    """Engines of one host that do not know of one another."""
    found = []
    for number in range(AT_ONCE):
        folder = tmp_path / f"engine-{number}"
        folder.mkdir()
        found.append(RealEngine(host, folder, f"engine-{number}", 8000 + number))
    yield found
    for engine in found:
        engine.stop()


def test_no_false_alarm_in_thirty_starts(
    engines: list[RealEngine], record_property: Callable[[str, object], None]
) -> None:
    outcomes: Counter[str] = Counter()
    seconds: list[float] = []
    loads: list[float] = []
    for number in range(ROUNDS):
        for engine in engines:  # also takes the journals of the last round away
            engine.configure(limits={"start_s": LIMIT_S}, readiness={"warm": "short"})
        begun = time.monotonic()
        for engine in engines:
            engine.start()
        for engine in engines:
            last = poll(lambda engine=engine: ended(engine.verdicts()), LIMIT_S, step_s=2.0)
            loads.append(round(os.getloadavg()[0], 1))
            kept = engine.folder / f"start-{number}.jsonl"
            kept.write_text(engine.dump())
            alarms = [one for one in engine.verdicts() if one["outcome"] not in GOOD]
            assert not alarms, f"{alarms[0]}: {kept}"
            assert last, f"not proven within {LIMIT_S:g} s: {kept}"
            # `sglangctl wait`, ExecStartPost of the unit, let this start through.
            assert poll(lambda engine=engine: engine.show("ActiveState") == "active", 60), kept
            assert engine.show("NRestarts") == "0", kept
            seconds.append(float(last["t"]))
            outcomes[last["outcome"]] += 1
        for engine in engines:
            engine.stop()
        record_property("starts", sum(outcomes.values()))
        record_property("false_alarms", 0)
        record_property("outcomes", dict(outcomes))
        record_property("proven_after_s", {"least": min(seconds), "most": max(seconds)})
        record_property("load", {"least": min(loads), "most": max(loads)})
        print(number, time.monotonic() - begun, seconds[-AT_ONCE:], loads[-AT_ONCE:], flush=True)


def ended(verdicts: list[Event]) -> Event | None:
    """The first verdict that is proven, or that no good start has."""
    return next(
        (one for one in verdicts if one["outcome"] in PROVEN or one["outcome"] not in GOOD), None
    )
