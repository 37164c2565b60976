"""Every recorded start gets its verdict, inside its window, from what a watcher sees."""

from __future__ import annotations

import json
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from sglangctl.diagnosis.causes import CAUSES
from sglangctl.diagnosis.outcomes import OUTCOMES, PHASES
from sglangctl.startup.assessment import Assessment
from sglangctl.startup.fold import Startup
from sglangctl.state import journal

HERE = Path(__file__).parent
TRACES = sorted(path.parent.name for path in HERE.glob("*/expected.json"))
UP = ("serving", "ready", "degraded")


def expected_of(name: str) -> dict[str, Any]:
    document = json.loads((HERE / name / "expected.json").read_text(encoding="utf-8"))
    assert isinstance(document, dict)
    return document


def visible(name: str) -> Iterator[journal.Event]:
    """The trace without what a watcher does not see."""
    for event in journal.read(HERE / name / "journal.jsonl"):
        if event["kind"] not in ("injected", "verdict"):
            yield event


@cache
def judged(name: str) -> tuple[Startup, list[Assessment]]:
    """The fold at the end of what is judged, and every assessment until there: to read only."""
    end = expected_of(name).get("stopped_by_us_s", float("inf"))
    startup = Startup()
    said = [startup.feed(event) for event in visible(name) if event["t"] < end]
    if startup.stopped_t is not None:
        # The journal ends with the look that shows it: time alone decides then.
        said.append(startup.tick(startup.stopped_t + 5.0))
    return startup, said


def test_there_are_traces() -> None:
    assert len(TRACES) >= 136, "the fixtures are incomplete"


@pytest.mark.parametrize("name", TRACES)
def test_words_are_of_the_closed_lists(name: str) -> None:
    _, said = judged(name)
    for assessment in said:
        assert assessment.phase in PHASES
        assert assessment.outcome in OUTCOMES
        assert assessment.cause is None or assessment.cause in CAUSES
        assert assessment.evidence or assessment.outcome == "pending"
        assert all(line.isprintable() for line in assessment.evidence)


@pytest.mark.parametrize("name", TRACES)
def test_verdict(name: str) -> None:
    expected = expected_of(name)
    startup, said = judged(name)
    outcome = expected["outcome"]
    if outcome is None:
        assert {assessment.outcome for assessment in said} == {"pending"}
        return
    if outcome == "pending":
        pending(expected, startup, said)
        return
    wanted = UP if outcome == "serving" else (outcome,)
    verdicts = [assessment for assessment in said if assessment.outcome != "pending"]
    if expected.get("held"):
        assert any(item.cause == "rank-stopped" for item in verdicts), "that it was held is shown"
        verdicts = [item for item in verdicts if item.cause != "rank-stopped"]
    assert verdicts, "no verdict"
    first = verdicts[0]
    assert first.outcome in wanted, first
    assert expected.get("not_before_s", 0.0) <= first.t <= expected["by_s"], first
    if "cause" in expected:
        causes = {item.cause for item in verdicts if item.outcome == outcome}
        assert causes == {expected["cause"]}
    if "phase" in expected:
        assert first.phase == expected["phase"]
    if outcome != "serving":
        assert {item.outcome for item in verdicts} == {outcome}, "the verdict did not last"


def pending(expected: dict[str, Any], startup: Startup, said: list[Assessment]) -> None:
    """No verdict before until_s; where nothing more comes, `stalled` after its time."""
    early = [item for item in said if item.t < expected["until_s"] and item.outcome != "pending"]
    assert early == []
    if "phase" in expected:
        assert said[-1].phase == expected["phase"]
    if "stalled_by_s" not in expected:
        return
    assert startup.tick(expected["until_s"]).outcome == "pending"
    late = startup.tick(expected["stalled_by_s"])
    assert (late.outcome, late.phase) == ("stalled", expected["phase"])


AFTER = [name for name in TRACES if "after" in expected_of(name)]


@pytest.mark.parametrize("name", AFTER)
def test_what_happens_after_serving(name: str) -> None:
    expected = expected_of(name)
    _, said = judged(name)
    bounds = [state.get("after_s", 0.0) for state in expected["after"]] + [float("inf")]
    for state, end in zip(expected["after"], bounds[1:]):
        since = state.get("after_s", expected["by_s"])
        noticed = [
            item.t for item in said if since <= item.t < end and item.outcome == state["state"]
        ]
        assert noticed, f"{state['state']} was not noticed"
        assert noticed[0] <= state["by_s"]
    up = [item for item in said if expected["by_s"] <= item.t < bounds[0]]
    assert {item.outcome for item in up} <= set(UP), "a false alarm while it served"


SERVING = [name for name in TRACES if expected_of(name)["outcome"] == "serving"]


@pytest.mark.parametrize("name", SERVING)
def test_no_false_alarm_while_it_serves(name: str) -> None:
    expected = expected_of(name)
    end = min(
        [state.get("after_s", expected["by_s"]) for state in expected.get("after", [])]
        + [expected.get("stopped_by_us_s", float("inf"))]
    )
    _, said = judged(name)
    served = False
    for assessment in said:
        if assessment.t < end:
            served = served or assessment.outcome in UP
            assert assessment.outcome in (UP if served else ("pending",)), assessment


@pytest.mark.parametrize("name", SERVING)
def test_serving_within_a_second_of_the_first_good_answer(name: str) -> None:
    _, said = judged(name)
    first = next(item.t for item in said if item.outcome in UP)
    answers = [
        event["t"]
        for event in visible(name)
        if event["kind"] == "http" and event["path"] == "/health" and event["status"] == 200
    ]
    assert first <= answers[0] + 1.0


@pytest.mark.parametrize("name", SERVING)
def test_phases_come_in_their_order(name: str) -> None:
    # Line by line: a tiny model goes through several phases in one piece of log.
    end = expected_of(name).get("stopped_by_us_s", float("inf"))
    startup = Startup()
    phases: list[str] = []
    for event in visible(name):
        if event["t"] >= end:
            break
        pieces = event["data"].splitlines(keepends=True) if event["kind"] == "log" else [None]
        for piece in pieces:
            whole = event if piece is None else {**event, "data": piece}
            phases.append(startup.feed(whole).phase)
    order = list(PHASES)
    # The paths are walked after serving began, and before ready: `warming` once more.
    served = phases.index("serving")
    seen = [order.index(phase) for phase in phases[: served + 1]]
    assert seen == sorted(seen)
    assert set(phases[served:]) <= {"serving", "warming"} and phases[-1] == "serving"
    assert {"importing", "connecting", "loading", "allocating", "serving"} <= set(phases)


def test_a_first_start_says_that_it_compiles() -> None:
    """On two H200s the graphs stood at 0 of 58 for a minute, and nothing said why."""
    for name, begin, end in (("gpu-cold-jit-tp2", 58, 120), ("gpu-no-graphs-cold-jit", 78, 165)):
        said = [item for item in judged(name)[1] if begin < item.t < end]
        told = [item for item in said if "compiling for" in (item.progress or "")]
        assert len(told) > 0.95 * len(said)
        assert any("kernels are being compiled" in line for line in told[0].evidence)
    warm = judged("gpu-warm-tp2")[1]
    assert not any("compiling" in (item.progress or "") for item in warm)


@pytest.mark.parametrize("name", TRACES)
def test_the_same_in_bytes_that_are_cut_anywhere(name: str) -> None:
    """Log pieces may end anywhere: cut in threes, the verdict and its cause are the same."""
    whole = Startup()
    cut = Startup()
    for event in visible(name):
        one = whole.feed(event)
        if event["kind"] != "log":
            two = cut.feed(event)
            continue
        data = event["data"]
        step = max(1, len(data) // 3)
        for start in range(0, len(data), step):
            two = cut.feed({**event, "data": data[start : start + step]})
        assert (one.phase, one.outcome, one.cause) == (two.phase, two.outcome, two.cause)
