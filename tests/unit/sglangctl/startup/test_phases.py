"""The phases of a start, step by step."""

from __future__ import annotations

from sglangctl.startup.fold import Startup
from sglangctl.startup.loglines import Bar, bar
from sglangctl.startup.phases import Phases
from tests.support.startup_events import feed, launch, log, raw, serving


def test_a_rank_that_has_loaded_shows_the_phase_until_the_last_has() -> None:
    phases = Phases()
    phases.world = 2
    assert phases.load_end(5, "TP0") is True
    assert phases.name == "loading" and phases.since == 5
    phases.load_begin(6, "TP1")
    assert phases.allocating(7) is False and phases.name == "loading"
    assert phases.load_end(8, "TP1") is True
    assert (phases.name, phases.seconds(9)["loading"]) == ("allocating", 3.0)
    assert phases.allocating(9) is False


def test_a_scheduler_is_not_complete_while_one_captures() -> None:
    phases = Phases()
    assert phases.capture_begin(1, "TP0", "target decode") is True
    assert phases.initialised(2) is False and phases.name == "capturing"
    phases.capture_end("TP0")
    assert phases.initialised(3) is True and phases.name == "binding"


def test_ranks_are_remembered_up_to_a_limit() -> None:
    phases = Phases()
    for rank in range(5000):
        phases.spoke(f"TP{rank}")
    assert len(phases.ranks) == 4096


def test_gpu_memory_moves_the_phase_only_where_it_is_new() -> None:
    size = [97887.0, 97887.0]
    phases = Phases()
    assert phases.from_gpu is False
    # In use in the first seconds: somebody else's.
    assert phases.gpu(1, [9000.0, 9000.0], size, ours=False) is False
    assert phases.gpu(9, [9000.0, 60000.0], size, ours=False) is False
    assert phases.gpu(10, [59000.0, 60000.0], size, ours=False) is True
    assert (phases.name, phases.from_gpu) == ("loading", True)
    # Looked at later for the first time: all of it counts.
    late = Phases()
    assert late.gpu(6, [9000.0, 9000.0], size, ours=False) is True
    assert late.gpu(7, [], [], ours=False) is False


def test_bars_of_shards_end_with_the_phase() -> None:
    startup = Startup()
    feed(startup, launch(), log(50, "Load weight begin. avail mem=93.00 GB"))
    feed(
        startup, raw(51, "\rLoading safetensors checkpoint shards:  50% Completed | 3/6 [00:01<?]")
    )
    assert startup.work.current is not None and startup.phases.name == "loading"
    feed(startup, log(60, "Load weight end. elapsed=9.0 s, type=X, avail mem=80.00 GB"))
    assert startup.phases.name == "allocating" and startup.work.current is None


def test_lines_of_the_log_that_move_the_phase() -> None:
    startup = Startup()
    feed(startup, launch(weights_bytes={"target": 1, "drafter": 0}, history={"importing": 0}))
    assert startup.launched.weights_bytes == {"target": 1}
    assert startup.launched.history == {"importing": 0.0}
    for line, phase in (
        (raw(1, "\rDownloading: 50% Completed | 1/2 [00:01<?]"), "importing"),
        (
            raw(2, "\rLoading safetensors checkpoint shards:  50% Completed | 3/6 [00:01<?]"),
            "loading",
        ),
        (log(3, "KV Cache is allocated. #tokens: 10"), "allocating"),
        (log(4, "Tree cache initialized"), "binding"),
    ):
        assert feed(startup, line).phase == phase


def test_a_line_as_long_as_a_page_is_no_bar() -> None:
    shown = "Loading shards: 50% Completed | 3/6 [00:01<?]"
    assert bar(shown) == Bar("Loading shards", 3, 6)
    assert bar("x" * 600 + shown) is None


def test_the_answer_to_a_client_ends_its_load() -> None:
    startup = serving()
    feed(
        startup, log(20, "Decode batch, #running-req: 1, #token: 9, gen throughput (token/s): 5.0")
    )
    assert startup.service.loaded is True
    feed(startup, raw(21, 'INFO:     1.2.3.4:5 - "GET /health HTTP/1.1" 200 OK\n'))
    assert startup.service.loaded is True
    feed(startup, raw(22, 'INFO:     1.2.3.4:5 - "POST /v1/completions HTTP/1.1" 200 OK\n'))
    assert startup.service.loaded is False
