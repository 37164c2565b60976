"""When a switch gives a start up, and when it must not: on an injected clock."""

from __future__ import annotations

from typing import Any

import pytest

from sglangctl.startup.assessment import Assessment
from sglangctl.state.paths import Paths
from sglangctl.switch import outcome
from sglangctl.systemd.unit import Unit
from tests.support.engine_config import ENGINE

NEVER = 100_000.0


def verdict(word: str, **more: Any) -> dict[str, Any]:
    return {"kind": "verdict", "outcome": word, **more}


SLOWER = "acceptance: one at a time: 12.5 ms a token, the engine before it had 10.0 ms"
STOPPED = {"cause": "rank-stopped"}
CASES: list[tuple[str, list[tuple[float, str, dict[str, Any] | None]], str, float]] = [
    # name, (from second, what systemd says, the watch's last word), the outcome, at the earliest
    ("ready at once", [(0, "active", verdict("ready"))], "ready", 0),
    ("degraded counts as proven", [(0, "active", verdict("degraded"))], "degraded", 0),
    ("failed", [(0, "activating", None), (5, "active", verdict("failed"))], "failed", 5),
    (
        "a rank stopped for a moment",
        [
            (0, "active", verdict("stalled", **STOPPED)),
            (20, "active", verdict("pending")),
            (40, "active", verdict("ready")),
        ],
        "ready",
        40,
    ),
    ("a rank stays stopped", [(0, "active", verdict("stalled", **STOPPED))], "rank-stopped", 30),
    (
        "not responding for another reason is not given up before the proof's time",
        [(0, "active", verdict("unresponsive"))],
        "unproven",
        660,
    ),
    ("serves and never proves it", [(0, "active", verdict("serving"))], "unproven", 660),
    (
        "is slower than what it replaces, and the inventory wants it refused",
        [
            (0, "active", verdict("serving", phase="warming")),
            (40, "active", verdict("serving", phase="serving", evidence=[SLOWER])),
        ],
        "unproven",
        40,
    ),
    (
        "serves and compiles for long",
        [
            (0, "active", verdict("serving", phase="warming")),
            (2000, "active", verdict("ready")),
        ],
        "ready",
        2000,
    ),
    ("down without a word of the watch", [(0, "failed", None)], "down", 3),
    (
        "down, and the watch says why",
        [(0, "failed", None), (2, "failed", verdict("failed"))],
        "failed",
        2,
    ),
    ("nothing is heard of it", [(0, "active", None)], "deadline", 3720),
    (
        "slow and moving",
        [(0, "active", verdict("pending")), (3000, "active", verdict("ready"))],
        "ready",
        3000,
    ),
]


@pytest.mark.parametrize(
    ("states", "word", "at"), [case[1:] for case in CASES], ids=[case[0] for case in CASES]
)
def test_the_end_of_a_start(
    states: list[tuple[float, str, dict[str, Any] | None]],
    word: str,
    at: float,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Any,
) -> None:
    now = 0.0

    def sleep(seconds: float) -> None:
        nonlocal now
        now += seconds
        assert now < NEVER

    def present() -> tuple[str, dict[str, Any] | None]:
        return next((state, said) for since, state, said in reversed(states) if now >= since)

    def find(name: str) -> Unit:
        said = {"LoadState": "loaded", "ActiveState": present()[0], "InvocationID": "b" * 32}
        return Unit(name, {**said, "SubState": "x", "Result": "exit-code", "Id": name})

    monkeypatch.setattr(outcome, "find", find)
    monkeypatch.setattr(outcome.starts, "of_invocation", lambda *_: "start")
    monkeypatch.setattr(outcome.starts, "last_verdict", lambda _: present()[1])
    ended = outcome.follow(ENGINE, Paths(tmp_path), lambda _: None, "a" * 32, lambda: now, sleep)
    assert ended.word == word
    assert at <= now <= at + 5


def test_a_failure_at_the_gate_has_the_evidence_of_the_verdict_that_was_just_made() -> None:
    """It was dropped: the watch's journal has a list there, the verdict in memory had a tuple."""
    event = {"phase": "connecting", "outcome": "failed", "cause": "unknown", "evidence": ["log: x"]}
    made = Assessment.of_event(event)
    assert made is not None
    assert outcome.of_verdict(ENGINE, made.as_dict(), None).evidence == ["log: x"]
