"""Whatever a journal holds, the phase machine says something from the closed lists."""

from __future__ import annotations

import json
import statistics
import time
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sglangctl.diagnosis.causes import CAUSES
from sglangctl.diagnosis.outcomes import OUTCOMES, PHASES
from sglangctl.startup.assessment import Assessment
from sglangctl.startup.fold import Startup
from tests.support import fuzz

scalars = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.floats(),
    st.text(max_size=40),
    st.sampled_from(fuzz.ODD),
)
values = st.recursive(
    scalars,
    lambda inner: st.one_of(
        st.lists(inner, max_size=3),
        st.dictionaries(st.sampled_from(fuzz.FIELDS) | st.text(max_size=5), inner, max_size=4),
    ),
    max_leaves=8,
)
lines = st.one_of(
    st.text(max_size=200),
    st.sampled_from(
        [
            "[2026-11-29 15:37:30 TP0] Load weight begin. avail mem=1 GB\n",
            "\rMulti-thread loading shards:  57% Completed | 8/14 [00:00<00:00]",
            "[2026-11-29 15:37:30 TP0] Scheduler hit an exception: Traceback (most recent call last):\n",
            "ValueError: x\n",
            '[2026-11-29 15:37:30] INFO:     1.1.1.1:1 - "GET /health HTTP/1.1" 200 OK\n',
            "\x1b[1;33m",
            "Prefill batch, #new-seq: x, #new-token: 99999999999999999999\n",
        ]
    ),
)
events = st.one_of(
    st.builds(
        lambda kind, t, fields: {**fields, "kind": kind, "t": t},
        st.sampled_from(fuzz.KINDS),
        st.one_of(st.floats(), st.floats(0, 4000), values),
        st.dictionaries(st.sampled_from(fuzz.FIELDS), values, max_size=5),
    ),
    st.builds(lambda t, data: {"t": t, "kind": "log", "data": data}, st.floats(0, 4000), lines),
)


def sound(said: Assessment) -> None:
    assert said.phase in PHASES
    assert said.outcome in OUTCOMES
    assert said.cause is None or said.cause in CAUSES
    assert (said.outcome == "failed") <= (said.cause is not None)
    assert all(line.isprintable() for line in said.evidence)
    assert said.progress is None or said.progress.isprintable()
    assert said.eta_s is None or (said.eta_s >= 0 and said.eta_error_s is not None)
    json.dumps(said.as_dict(), allow_nan=False)


@given(st.lists(events, max_size=25))
def test_any_events(sequence: list[dict[str, Any]]) -> None:
    startup = Startup()
    final = False
    for event in sequence:
        before = startup.now
        said = startup.feed(event)
        sound(said)
        assert startup.now >= before
        assert not final or said.outcome == "failed", "failed is final"
        final = said.outcome == "failed"
        due = startup.due
        assert due is None or due > startup.now
        sound(startup.tick(startup.now + 1.0))
        final = final or startup.tick(startup.now).outcome == "failed"


@given(st.lists(lines, max_size=12), st.data())
def test_the_same_however_the_log_is_cut(pieces: list[str], data: st.DataObject) -> None:
    whole = "".join(pieces)
    one, two = Startup(), Startup()
    one.feed({"t": 1.0, "kind": "log", "data": whole})
    at = 0
    while at < len(whole):
        step = data.draw(st.integers(1, 30))
        two.feed({"t": 1.0, "kind": "log", "data": whole[at : at + step]})
        at += step
    first, second = one.tick(9.0), two.tick(9.0)
    assert (first.phase, first.outcome, first.cause) == (second.phase, second.outcome, second.cause)


def test_generated_events() -> None:
    feed_all(seed=1, count=8000, reach={"pending", "failed", "serving"})


@pytest.mark.slow
@pytest.mark.timeout(1500)
def test_a_million_generated_events() -> None:
    feed_all(seed=20261129, count=1_000_000, reach=set(OUTCOMES) - {"ready", "degraded"})


def feed_all(seed: int, count: int, reach: set[str]) -> None:
    startup = Startup()
    seen: set[str] = set()
    spent: list[int] = []
    for index, event in enumerate(fuzz.events(seed, count)):
        # A failure ends what can be seen of a start: many short ones, and some long ones.
        if event.get("kind") == "launch" and index // 500 % 4:
            startup = Startup()
        begin = time.perf_counter_ns()
        said = startup.feed(event)
        spent.append(time.perf_counter_ns() - begin)
        seen.add(said.outcome)
        if index % 50 == 0:
            sound(said)
    assert reach <= seen, "the generator reaches too little"
    # 20 us is the promise (benchmarks/startup.py measures it); five times that on a busy machine.
    assert statistics.median(spent) < 100_000


def test_the_generator_is_reproducible() -> None:
    def run(seed: int) -> str:
        return repr(list(fuzz.events(seed, 200)))

    assert run(7) == run(7)
    assert run(7) != run(8)
