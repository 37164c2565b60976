"""Single events: what a missing, wrong or borderline value does to the start."""

from __future__ import annotations

from typing import Any

import pytest

from sglangctl.startup.assessment import Progress
from sglangctl.startup.fold import Startup
from sglangctl.startup.loglines import Line, Splitter
from sglangctl.startup.phases import CONTEXT_MIB, Phases
from tests.support.startup_events import MAIN, UVICORN, feed, http, launch, log, processes, raw


def test_the_clock_begins_at_the_first_event() -> None:
    startup = Startup()
    feed(startup, launch(0.25))
    assert startup.now == 0.25
    feed(startup, launch(0.125))
    assert startup.now == 0.25


@pytest.mark.parametrize("data", [None, 7, "", [], {"a": 1}])
def test_a_log_event_without_text_changes_nothing(data: Any) -> None:
    said = feed(Startup(), launch(), {"t": 1, "kind": "log", "data": data})
    assert (said.phase, said.outcome) == ("launching", "pending")


def test_a_process_imports_from_its_first_processor_time_on() -> None:
    startup = Startup()
    assert feed(startup, launch(), processes(1, {**MAIN, "cpu_s": 0.0})).phase == "launching"
    assert feed(startup, processes(2, {**MAIN, "cpu_s": 0.1})).phase == "importing"


@pytest.mark.parametrize(
    ("busy", "since"), [(None, None), ("x", None), (4.9, None), (5.0, 1.0), (50.0, 1.0)]
)
def test_a_gpu_whose_numbers_are_missing_is_empty_and_idle(busy: Any, since: float | None) -> None:
    startup = Startup()
    feed(startup, {"t": 1, "kind": "gpu", "gpus": [{"index": 0, "utilization_pct": busy}]})
    assert startup.gpus == [(0.0, 0.0)]
    assert startup.gpu_busy_t == since


def test_a_probe_without_clients_sees_none() -> None:
    startup = Startup()
    feed(startup, {"t": 1, "kind": "socket", "port": 30000}, launch(2))
    assert startup.service.clients_t is None
    feed(startup, {"t": 3, "kind": "socket", "port": 30000, "clients": 1})
    assert startup.service.clients_t == 3


def test_files_that_cannot_be_read_are_remembered_up_to_a_limit() -> None:
    startup = Startup()
    for number in range(70):
        feed(startup, {"t": 1, "kind": "file", "path": f"/models/{number}", "readable": False})
    feed(startup, {"t": 1, "kind": "file", "path": "/models/0", "readable": True, "why": "x"})
    assert len(startup.unreadable) == 64
    assert startup.unreadable["/models/0"] == "it exists and cannot be read"


def test_a_phase_that_is_told_twice_began_with_the_first() -> None:
    phases = Phases()
    assert phases.at_least(10, "importing") is True
    assert phases.at_least(20, "importing") is False
    assert phases.since == 10 and phases.at_least(30, "launching") is False


@pytest.mark.parametrize(
    ("total", "shown"),
    [(10**9, "target: 0.5 of 1.0 GB"), (10**9 - 1, "target: 500.0 of 1000.0 MB")],
)
def test_a_gigabyte_and_more_is_shown_in_gigabytes(total: int, shown: str) -> None:
    assert str(Progress("target", "bytes", 500_000_000, total)) == shown


def test_a_message_behind_an_unfinished_bar_is_a_line_of_its_own() -> None:
    message = "[2026-11-29 15:37:30 TP0] Load weight begin.\n"
    for bar in ("%", "Loading:  50% 3/6 [00:01<?] [20:15"):
        assert Splitter().feed(0, f"x\n{bar}{message}")[1:] == [
            Line(bar, None),
            Line("Load weight begin.", "TP0"),
        ]


@pytest.mark.parametrize(
    ("quiet", "said"), [(9.9, "processor time moves"), (10.0, "processor time flat for 10 s")]
)
def test_processor_time_is_flat_after_ten_seconds(quiet: float, said: str) -> None:
    startup = Startup()
    feed(startup, launch(), processes(1, MAIN), processes(2, {**MAIN, "cpu_s": 2.0}))
    moved = startup.motion.cpu_last
    assert said in startup.tick(moved + quiet).evidence


def test_an_answer_counts_only_from_the_moment_that_the_port_is_ours() -> None:
    for asked, good in ((0.99, False), (0.999, True), (1.0, True), (1.5, True)):
        startup = Startup()
        feed(startup, launch(), raw(1, f"{UVICORN}\n"), http(asked, 200, 0.0))
        assert (startup.service.good_t is not None) is good, asked


@pytest.mark.parametrize(
    "event",
    [
        log(50, "Init torch distributed begin.", "TP0"),
        log(50, "Load weight begin. avail mem=93.00 GB", "TP0"),
        log(50, "KV Cache is allocated. #tokens: 10", "TP0"),
        log(50, "Capture cuda graph begin. This can take a while", "TP0"),
        log(50, "Engine startup timings: x", "TP0"),
        raw(50, "INFO:     Started server process [7]\n"),
        raw(50, "INFO:     Waiting for application startup.\n"),
        raw(50, "anything else\n"),
    ],
)
def test_a_line_that_the_engine_writes_is_motion(event: dict[str, Any]) -> None:
    startup = Startup()
    feed(startup, launch(), event)
    assert startup.motion.last == 50


def test_lines_that_our_own_looks_cause_are_no_motion() -> None:
    startup = Startup()
    feed(startup, launch(), raw(50, 'INFO:     1.2.3.4:5 - "GET /health HTTP/1.1" 503\n'))
    feed(startup, log(50, "Endpoint '/get_x' is deprecated and will be removed"))
    assert startup.motion.last < 50


def test_a_context_on_every_gpu_is_a_rendezvous() -> None:
    size = [97887.0]
    for used, moved in ((CONTEXT_MIB, False), (CONTEXT_MIB + 0.5, True)):
        assert Phases().gpu(6, [used], size, ours=False) is moved
        assert Phases().gpu(6, [used], size, ours=True) is moved
