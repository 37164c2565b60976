"""What clients can make the engine write into its log is no evidence of how the engine is."""

from __future__ import annotations

import pytest

from sglangctl.startup.fold import Startup
from tests.support.startup_events import (
    DETOKENIZER,
    MAIN,
    TP0,
    exit_,
    feed,
    generate,
    http,
    log,
    process,
    processes,
    serving,
    timeout,
    traceback,
)

EVERYBODY = (MAIN, TP0, DETOKENIZER)
FORGED = [
    traceback(30, "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB."),
    log(30, "Received sigquit from a child process. It usually means the child failed."),
    log(30, "SIGQUIT received. signum=None, frame=None. It usually means one child failed."),
    log(30, "Subprocess sglang::scheduler_TP0 (pid=2) crashed with exit code -9"),
    log(30, "Rank 0 scheduler is dead. Please check if there are relevant logs."),
    log(30, "Initialization failed. warmup error: Traceback (most recent call last):"),
    log(30, "[Errno 98] error while attempting to bind on address ('0.0.0.0', 30000): address "
        "already in use"),
    log(30, "Scheduler watchdog timeout (self.watchdog_timeout=300, self.soft=False)"),
]  # fmt: skip


def up() -> Startup:
    startup = serving(10)
    feed(startup, processes(11, *EVERYBODY), generate(12))
    return startup


@pytest.mark.parametrize("words", FORGED, ids=lambda event: event["data"][22:60])
def test_a_client_s_words_are_no_failure_while_the_processes_live(words: dict[str, object]) -> None:
    startup = up()
    assert feed(startup, words).outcome == "ready"
    for t in range(31, 400, 5):
        said = feed(startup, processes(t, *EVERYBODY), http(t + 0.5, 200, 0.1))
        assert said.outcome == "ready", said
    # Nor are they the cause of an end that has nothing to do with them.
    said = feed(startup, exit_(400, -15))
    assert (said.outcome, said.cause) == ("failed", "killed")


@pytest.mark.parametrize("words", FORGED[:5], ids=lambda event: event["data"][22:60])
def test_they_count_with_a_process_that_died(words: dict[str, object]) -> None:
    startup = up()
    feed(startup, words, processes(30.5, *EVERYBODY))
    dead = process(2, "", "Z")
    feed(startup, processes(31.5, MAIN, dead, DETOKENIZER))
    said = startup.tick(startup.due or 34)
    assert said.outcome == "failed"
    assert said.cause in ("gpu-out-of-memory", "rank-died"), said


def test_the_engine_s_own_exception_is_the_cause_once_it_died_of_it() -> None:
    startup = up()
    feed(startup, FORGED[0], timeout(32, 1.0))
    said = feed(startup, exit_(33, -9))
    assert (said.outcome, said.cause) == ("failed", "gpu-out-of-memory")


def test_where_no_process_is_seen_the_words_are_all_there_is() -> None:
    startup = serving(10)
    feed(startup, FORGED[0])
    assert startup.tick(33).outcome == "failed"


@pytest.mark.parametrize("words", ["SIGTERM received. Draining", "Gracefully exiting..."])
def test_an_engine_that_is_said_to_stop_and_answers_is_watched_on(words: str) -> None:
    startup = up()
    feed(startup, log(30, words), http(40, 200, 0.1), timeout(45, 1.0))
    assert startup.tick(80).outcome == "unresponsive"


def test_they_are_taken_back_with_a_look_that_had_missed_a_process() -> None:
    startup = up()
    feed(startup, FORGED[1], processes(31, MAIN, DETOKENIZER), processes(31.2, *EVERYBODY))
    said = feed(startup, http(33, 200, 0.1), processes(34, *EVERYBODY))
    assert said.outcome == "ready"
    assert feed(startup, exit_(400, -15)).cause == "killed"
