"""Slow or stuck: what counts as motion, and when silence becomes a verdict."""

from __future__ import annotations

import pytest

from sglangctl.startup.fold import Startup
from tests.support.startup_events import (
    DETOKENIZER,
    MAIN,
    TP0,
    TP1,
    exit_,
    feed,
    gpus,
    http,
    launch,
    log,
    process,
    processes,
    raw,
    serving,
)


def quiet(t: float = 60.0) -> Startup:
    """A start whose log has said its last word at `t`; processes sleep, GPUs rest."""
    startup = Startup()
    feed(startup, launch(), log(t, "Load weight begin. avail mem=93.00 GB", "TP0"))
    for later in (0.0, 2.0):
        feed(startup, processes(t + later, MAIN, TP0, TP1, DETOKENIZER), gpus(t, 76e3, 76e3))
    return startup


def test_all_flat_takes_five_minutes() -> None:
    startup = quiet(60)
    assert startup.tick(359.9).outcome == "pending"
    said = startup.tick(360.1)
    assert (said.outcome, said.cause) == ("stalled", None)
    assert said.evidence[0].startswith("nothing moved for 300 s")
    assert any("processor time flat" in line for line in said.evidence)


def test_while_processor_time_moves_it_takes_fifteen() -> None:
    startup = quiet(60)
    for t in range(63, 1000, 3):
        spin = process(2, "sglang::scheduler_TP0", "R", cpu_s=t)
        said = feed(startup, processes(t, MAIN, spin, TP1, DETOKENIZER))
        assert said.outcome == ("pending" if t < 960 else "stalled"), t


def test_processor_time_that_ends_gives_five_minutes_from_there() -> None:
    startup = quiet(60)
    for t in range(63, 200, 3):
        spin = process(2, "sglang::scheduler_TP0", "R", cpu_s=t)
        feed(startup, processes(t, MAIN, spin, TP1, DETOKENIZER))
    feed(startup, processes(201, MAIN, {**spin, "state": "S"}, TP1, DETOKENIZER))
    assert startup.tick(497).outcome == "pending"
    assert startup.tick(500).outcome == "stalled"


def test_absent_evidence_is_unknown_not_flat() -> None:
    startup = Startup()
    feed(startup, launch(), log(60, "Load weight begin. avail mem=93.00 GB"))
    assert startup.tick(959).outcome == "pending"
    assert startup.tick(961).outcome == "stalled"


@pytest.mark.parametrize("moving", ["log", "shards", "gpu", "bytes", "compiler"])
def test_anything_that_moves_is_a_sign_of_life(moving: str) -> None:
    startup = quiet(60)
    ranks = (TP0, TP1, DETOKENIZER)
    nvcc = process(50, "/usr/local/cuda/bin/nvcc -c x.cu")
    for step in range(1, 8):
        t = 60 + step * 290.0
        nvcc["cpu_s"] = step * 1.0
        bar = f"\rLoading safetensors checkpoint shards: 1% Completed | {step}/64 [00:00<?, ?it/s]"
        feed(
            startup,
            {
                "log": log(t, "Using Transformers backend.", "TP0"),
                "shards": raw(t, bar),
                "gpu": gpus(t, 76e3 + step * 10, 76e3),
                "bytes": processes(t, {**MAIN, "read_bytes": step * 10**9}, *ranks),
                "compiler": processes(t, MAIN, *ranks, nvcc),
            }[moving],
        )
        assert startup.tick(t + 289).outcome == "pending"
    assert startup.tick(t + 301).outcome == "stalled"


def test_our_own_probes_are_no_motion() -> None:
    startup = quiet(60)
    for t in range(61, 400):
        line = 'INFO:     127.0.0.1:51334 - "GET /health HTTP/1.1" 503 Service Unavailable'
        said = feed(startup, http(t, 503), log(t, line), gpus(t, 76e3, 76e3))
    assert said.outcome == "stalled"


def test_it_goes_on_after_all() -> None:
    startup = quiet(60)
    assert startup.tick(400).outcome == "stalled"
    assert feed(startup, gpus(401, 80e3, 80e3)).outcome == "pending"


def test_due_names_the_moment() -> None:
    startup = quiet(60)
    due = startup.due
    assert due is not None
    assert startup.tick(due - 0.01).outcome == "pending"
    while startup.due is not None and startup.tick(startup.due).outcome == "pending":
        pass
    assert startup.now == pytest.approx(360, abs=3)


def test_a_stopped_rank_is_named_with_the_second_look_that_shows_it() -> None:
    startup = quiet(60)
    listed = (MAIN, TP0, {**TP1, "state": "T"}, DETOKENIZER)
    assert feed(startup, processes(65, *listed)).outcome == "pending"
    said = feed(startup, processes(66, *listed))
    assert (said.outcome, said.cause) == ("stalled", "rank-stopped")
    assert "since 65 s after the launch: sglang::scheduler_TP1 (pid 3)" in said.evidence[0]
    assert feed(startup, processes(67, MAIN, TP0, TP1, DETOKENIZER)).outcome == "pending"


def test_a_stopped_rank_is_named_in_time_without_another_look() -> None:
    startup = quiet(60)
    feed(startup, processes(65, MAIN, TP0, {**TP1, "state": "T"}, DETOKENIZER))
    assert startup.tick(66).outcome == "pending"
    due = startup.due
    assert due is not None and due <= 70
    said = startup.tick(due)
    assert (said.outcome, said.cause) == ("stalled", "rank-stopped")


def test_one_look_at_a_stopped_process_decides_nothing() -> None:
    """A debugger that attaches stops it for a moment, in turn."""
    startup = quiet(60)
    for t in range(61, 91):
        stopped = (TP0, {**TP1, "state": "T"}) if t % 2 else ({**TP0, "state": "T"}, TP1)
        said = feed(startup, processes(t, MAIN, *stopped, DETOKENIZER))
        assert said.outcome == "pending"
        assert startup.tick(t + 0.9).outcome == "pending"


def test_all_stopped_at_once_is_no_debugger_s_moment() -> None:
    startup = quiet(60)
    stopped = [{**item, "state": "T"} for item in (MAIN, TP0, TP1, DETOKENIZER)]
    assert feed(startup, processes(65, *stopped)).cause == "rank-stopped"


def test_a_rank_stopped_while_it_serves_is_unresponsive() -> None:
    startup = serving(10)
    listed = (MAIN, TP0, {**DETOKENIZER, "state": "T"})
    said = feed(startup, processes(20, *listed), http(20.5, 200), processes(21, *listed))
    assert (said.outcome, said.cause) == ("unresponsive", "rank-stopped")


def test_tracing_is_not_stopping() -> None:
    """py-spy holds a process in state t for a moment."""
    said = feed(quiet(60), processes(65, MAIN, {**TP0, "state": "t"}, TP1))
    assert said.outcome == "pending"


@pytest.mark.parametrize("state", ["D", "S"])
def test_a_frozen_cgroup_is_told_without_state_t(state: str) -> None:
    startup = quiet(60)
    frozen = [{**item, "state": state} for item in (MAIN, TP0, TP1, DETOKENIZER)]
    said = feed(startup, processes(65, *frozen, frozen=True))
    assert said.outcome == "pending"  # a snapshot freezes it for a moment
    said = feed(startup, processes(66, *frozen, frozen=True))
    assert (said.outcome, said.cause) == ("stalled", "rank-stopped")
    assert "the cgroup is frozen since 65 s" in said.evidence[0]
    assert (
        feed(startup, processes(67, MAIN, TP0, TP1, DETOKENIZER, frozen=False)).outcome == "pending"
    )


def test_a_stopped_rank_that_dies_is_failed() -> None:
    startup = quiet(60)
    feed(startup, processes(65, MAIN, TP0, {**TP1, "state": "T"}))
    said = feed(startup, exit_(66, -9))
    assert (said.outcome, said.cause) == ("failed", "terminated")


def test_a_compiler_that_hangs_is_no_motion() -> None:
    startup = quiet(60)
    nvcc = process(50, "/usr/local/cuda/bin/nvcc -c x.cu")
    for t in range(70, 400, 10):
        said = feed(startup, processes(t, MAIN, TP0, TP1, DETOKENIZER, nvcc))
        assert said.outcome == ("pending" if t < 370 else "stalled"), t


def test_a_starved_process_is_not_flat() -> None:
    """On a busy machine it gets next to nothing, and wants more: state R, event after event."""
    startup = quiet(60)
    for t in range(63, 940, 3):
        starved = process(2, "sglang::scheduler_TP0", "R", cpu_s=1 + t * 0.02)
        said = feed(startup, processes(t, MAIN, starved, TP1, DETOKENIZER))
        assert said.outcome == "pending", t


def test_a_waiting_process_that_is_now_and_then_found_running_is_flat() -> None:
    startup = quiet(60)
    for t in range(63, 380, 3):
        state = "R" if t % 15 < 6 else "S"
        waiting = process(2, "sglang::scheduler_TP0", state, cpu_s=1 + t * 0.01)
        said = feed(startup, processes(t, MAIN, waiting, TP1, DETOKENIZER))
    assert said.outcome == "stalled"
