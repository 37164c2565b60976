"""How a start is told: phases, durations, lines for people."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from sglangctl.startup import render
from sglangctl.startup.assessment import Progress
from sglangctl.startup.summary import Summary
from sglangctl.state import journal
from tests.support.watched import Watched

GPU = {"memory_used_mib": 77824, "memory_total_mib": 97887}


@dataclass(frozen=True)
class View:
    t: float = 1.0
    phase: str = "loading"
    outcome: str = "pending"
    cause: str | None = None
    progress: str | None = None
    eta_s: float | None = None
    eta_error_s: float | None = None
    eta_until: str | None = None
    evidence: tuple[str, ...] = ()
    stopped_by: str | None = None


def verdict(t: float, phase: str, outcome: str = "pending", **more: Any) -> dict[str, Any]:
    return {"t": t, "kind": "verdict", "phase": phase, "outcome": outcome, **more}


def told(*events: tuple[float, str]) -> Summary:
    """From the verdicts of an older watch, which do not say how long the phases took."""
    summary = Summary()
    for t, phase in events:
        summary.feed(verdict(t, phase))
    return summary


def test_durations_add_up_and_leave_serving_out() -> None:
    summary = told(
        (0, "launching"),
        (1, "loading"),
        (5, "capturing"),
        (6, "loading"),
        (8, "serving"),
        (20, "serving"),
    )
    assert summary.durations() == {"launching": 1, "loading": 6, "capturing": 1}
    assert list(summary.durations()) == ["launching", "loading", "capturing"]
    assert summary.served_after() == 8


def test_the_present_phase_lasts_until_now() -> None:
    summary = told((0, "launching"), (2, "loading"))
    summary.tick(2.25)
    assert summary.durations() == {"launching": 2, "loading": 0.25}
    summary.tick(9)
    assert summary.durations() == {"launching": 2, "loading": 7}
    assert summary.served_after() is None


def test_durations_are_milliseconds() -> None:
    summary = told((0, "launching"), (2, "loading"))
    summary.tick(9.00049)
    assert summary.durations() == {"launching": 2, "loading": 7}
    summary.tick(9.0126)
    assert summary.durations()["loading"] == 7.013


def test_changes_are_told_once() -> None:
    summary = Summary()
    changes = [
        summary.feed(verdict(t, phase, outcome))
        for t, phase, outcome in (
            (0, "loading", "pending"),
            (1, "loading", "pending"),
            (2, "loading", "stalled"),
            (3, "serving", "serving"),
        )
    ]
    assert changes == [True, False, True, True]


def test_what_the_watch_writes_is_what_is_told(tmp_path: Path) -> None:
    watched = Watched(tmp_path / "journal.jsonl")
    watched.write(0, "launch", engine="sglang", port=30000)
    watched.write(1, "gpu", gpus=[GPU, "nonsense", None])
    watched.write(3, "log", data="INFO:     Uvicorn running on http://0.0.0.0:30000\n")
    watched.write(4, "socket", port=30000, owner_pid=7, ours=True)
    watched.write(9, "http", path="/health", status=200, error=None, seconds=0.1)
    events = list(journal.read(watched.path))
    whole, last = Summary(), Summary()
    for event in events:
        whole.feed(event)
    last.feed([event for event in events if event["kind"] == "verdict"][-1])
    for summary in (whole, last):
        assert summary.view is not None and summary.view.outcome == "serving"
        assert summary.served_after() == 9
        assert sum(summary.durations().values()) == 9 and "serving" not in summary.durations()
    assert whole.gpus == [GPU]
    assert last.durations() == whole.durations()


def test_an_estimate_grows_old() -> None:
    summary = Summary()
    summary.feed(verdict(10, "loading", eta_s=30.0, eta_error_s=5.0, eta_until="serving"))
    summary.tick(22)
    assert summary.view is not None and summary.view.eta_s == 18
    summary.tick(41)
    assert summary.view.eta_s is None


@pytest.mark.parametrize(
    "event",
    [
        verdict(1, "loading", "no-outcome"),
        verdict(1, "no-phase"),
        {"t": 1, "kind": "verdict", "outcome": ["a"], "phase": {}, "evidence": 7},
        verdict(1, "loading", phases=7, served_after_s="x", evidence={"a": 1}),
        verdict(1, "loading", phases={"loading": "x"}, cause=3, stopped_by=[]),
    ],
)
def test_a_verdict_that_makes_no_sense(event: dict[str, Any]) -> None:
    summary = Summary()
    summary.feed(verdict(0, "importing"))
    summary.feed(event)
    assert summary.view is not None and summary.view.phase in ("importing", "loading")
    assert summary.served_after() is None
    assert all(isinstance(seconds, float) for seconds in summary.durations().values())


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (-1, "0.0 s"),
        (0.44, "0.4 s"),
        (9.96, "10 s"),
        (59.4, "59 s"),
        (59.7, "1 min 00 s"),
        (192, "3 min 12 s"),
        (3599.6, "1 h 00 min"),
        (3900, "1 h 05 min"),
    ],
)
def test_duration(seconds: float, text: str) -> None:
    assert render.duration(seconds) == text


def test_gpu_memory() -> None:
    assert render.gpu_memory([GPU] * 8) == "8 GPUs 76.0 of 95.6 GiB"
    other = {**GPU, "memory_used_mib": 1024}
    assert render.gpu_memory([GPU, other]) == "2 GPUs 1.0-76.0 of 95.6 GiB"
    assert render.gpu_memory([GPU, {}, {"memory_used_mib": "x"}]) == "GPU 76.0 of 95.6 GiB"
    assert render.gpu_memory([]) == ""


def test_progress_line() -> None:
    view = View(progress="target: 3 of 64 shards", eta_s=55, eta_error_s=20, eta_until="serving")
    line = render.progress_line(view, 42, [GPU])
    assert line.split("  ", 1)[1].strip()
    assert " ".join(line.split()) == (
        "42 s loading target: 3 of 64 shards ETA 55 s (+- 20 s) GPU 76.0 of 95.6 GiB"
    )
    stalled = render.progress_line(View(outcome="stalled", cause="rank-stopped"), 42, [])
    assert "loading, stalled (rank-stopped)" in stalled
    ended = View(phase="serving", outcome="failed", cause="killed", stopped_by="a stop of kimi")
    assert render.progress_line(ended, 42, []).split("  ")[-1] == "stopped by a stop of kimi"
    proven = render.progress_line(View(phase="serving", outcome="ready"), 42, [])
    assert proven.split() == ["42", "s", "ready"]
    assert "to the end of loading" in render.eta(View(eta_s=1, eta_until="loading"))


def test_what_the_engine_says_cannot_steer_the_terminal() -> None:
    line = render.progress_line(View(progress="\x1b[2J", phase="\nx"), 0, [])
    assert "\x1b" not in line and "\n" not in line
    assert render.evidence(["a\x1b]0;x\x07\nb", "", "y" * 900]) == [
        "a\\x1b]0;x\\x07",
        "b",
        "y" * 197 + "...",
    ]


def test_progress_of_a_small_model_is_not_zero() -> None:
    assert str(Progress("target", "bytes", 1_500_000, 40_000_000)) == "target: 1.5 of 40.0 MB"
    assert str(Progress("target", "bytes", 1, 547_000_000_000)) == "target: 0.0 of 547.0 GB"


def test_evidence_is_said_once() -> None:
    assert render.evidence(["a", "log: a", "log: b"]) == ["a", "log: b"]


def test_answer() -> None:
    numbers = {"tokens_per_s": 41.23, "ttft_s": 0.214, "accept_length": None, "text": "x"}
    assert render.answer(numbers) == "41.2 tokens/s, first token after 0.21 s"
    assert render.answer({"accept_length": 2.1}) == "accept length 2.10"
    assert render.answer(None) == "" == render.answer({})


def test_a_cause_is_explained_for_this_engine() -> None:
    for cause in ("port-taken", "unknown"):
        first, second = render.explain("kimi", cause)
        assert first.startswith(f"{cause}: ") and second.startswith("next step: ")
        assert "NAME" not in second
    assert render.explain("kimi", "not-in-the-list\x1b") == ["not-in-the-list\\x1b"]
