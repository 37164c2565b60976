"""Borders: the last value on either side of a limit, and what a start is before its first event."""

from __future__ import annotations

from typing import Any

import pytest

from sglangctl.startup import render
from sglangctl.startup.fold import Startup
from sglangctl.startup.loglines import bar
from sglangctl.startup.motion import CPU_SHARE, Motion
from sglangctl.startup.progress import Counter, Work
from sglangctl.startup.ranks import Ranks
from sglangctl.startup.root_cause import root_cause
from sglangctl.startup.service import Service
from sglangctl.state.config import Limits
from tests.support.startup_events import (
    MAIN,
    exit_,
    feed,
    gpus,
    launch,
    log,
    processes,
    raw,
    serving,
    timeout,
)


def test_ranks_that_were_never_seen_neither_run_nor_compute() -> None:
    ranks = Ranks()
    assert ranks.running is False and ranks.cores == 0.0
    ranks.feed(0.5, {"processes": [{**MAIN, "cpu_s": 1.0}]})
    ranks.feed(1.5, {"processes": [{**MAIN, "cpu_s": 1.5}]})
    assert ranks.cores == 0.5, "half a second of processor time in one second"


@pytest.mark.parametrize(("share", "moved"), [(CPU_SHARE, True), (CPU_SHARE * 0.9, False)])
def test_little_processor_time_in_a_long_while_is_no_motion(share: float, moved: bool) -> None:
    motion = Motion()
    motion.processes(0.0, 0.0, 0.0, (), False)
    motion.processes(8.0, 8.0 * share, 0.0, (), False)
    assert (motion.cpu_last == 8.0) is moved


@pytest.mark.parametrize(
    ("seconds", "text"), [(9.94, "9.9 s"), (9.95, "10 s"), (59.4, "59 s"), (60, "1 min 00 s")]
)
def test_a_duration_has_as_many_digits_as_it_is_exact(seconds: float, text: str) -> None:
    assert render.duration(seconds) == text


def test_who_stopped_it_is_named() -> None:
    assert "systemd" in render.stopped("systemd") and "systemctl stop" in render.stopped("systemd")
    assert render.stopped("a switch") == "stopped by a switch"


@pytest.mark.parametrize("text", ["x:   0%|          | 0/0 [00:00<?]", "x: 200%|##| 2/1 [00:00<?]"])
def test_a_bar_of_nothing_is_no_bar(text: str) -> None:
    assert bar(text) is None


def test_a_bar_of_one_is_a_bar() -> None:
    found = bar("x: 100%|##| 1/1 [00:00<00:00]")
    assert found is not None and (found.done, found.total) == (1, 1)


def test_an_overdue_step_makes_the_estimate_wider_and_never_negative() -> None:
    counter = Counter("target", "shards", 10)
    for number in range(1, 6):
        counter.update(number * 10.0, number)
    best, error = counter.eta(50.0) or (0.0, 0.0)
    assert best == 50.0
    # 20 s after the next one was due, of which the error has three.
    assert counter.eta(80.0) == (50.0, pytest.approx(error + 20.0 * 3))


def test_the_rest_of_the_last_step_is_estimated_to_the_half_second() -> None:
    counter = Counter("target", "shards", 6)
    for number in range(1, 6):
        counter.update(number * 10.0, number)
    best, _ = counter.eta(59.5) or (0.0, 0.0)
    assert best == 0.5


def test_bytes_are_counted_from_the_moment_that_loading_begins() -> None:
    work = Work()
    work.weights_bytes = {"target": 1000}
    work.loading(10.0, "target")
    work.read(20.0, 500.0)
    assert work._bytes is not None and work._bytes.eta(20.0) is not None, "one step is enough"


def test_a_socket_of_another_port_says_nothing() -> None:
    service = Service()
    assert service.socket(1.0, {"port": 8001, "ours": True}, 8000) is False
    assert service.bound_t is None and service.socket_known is False


@pytest.mark.parametrize(
    ("line", "loaded"),
    [
        ("Decode batch, #running-req: 1, #queue-req: 1", True),
        ("Decode batch, #running-req: 0, #queue-req: 0", False),
        ("Prefill batch, #new-seq: 1, #new-token: 2", True),
        ("Prefill batch, #new-seq: 1, #new-token: 1", False),
        ("Prefill batch, #new-seq: 2, #new-token: 1", True),
    ],
)
def test_what_of_a_batch_is_work(line: str, loaded: bool) -> None:
    service = Service()
    service.batch(5.0, line)
    assert service.loaded is loaded and (service.tokens_t == 5.0) is loaded


def test_an_idle_engine_is_unresponsive_at_the_limit_and_not_before() -> None:
    limits = Limits()
    service = Service()
    service.good_t, service.failed = 0.5, 1
    end = 0.5 + limits.unresponsive_idle_s
    assert not service.silent(end - 0.01, limits, None)
    assert service.silent(end, limits, None)


def test_a_phase_that_the_last_start_left_half_a_second_later_has_an_estimate() -> None:
    startup = Startup()
    feed(startup, launch(history={"importing": 10.0}), processes(1, {**MAIN, "cpu_s": 0.5}))
    assert startup.tick(10.5).eta_s is not None
    assert startup.tick(11.5).eta_s is None


def test_an_unfinished_line_is_looked_at_again_half_a_second_later() -> None:
    startup = Startup()
    feed(startup, launch(), raw(5.0, "an unfinished line"))
    assert startup.due == pytest.approx(5.5)


def test_no_unfinished_line_is_waited_for() -> None:
    startup = Startup()
    feed(startup, launch(), raw(5.0, "a whole line\n"))
    assert startup.due != pytest.approx(5.5)


def test_who_stopped_it_is_in_the_verdict_of_a_failure_alone() -> None:
    startup = serving(10.0)
    feed(startup, {"t": 20, "kind": "step", "step": "stop", "by": "a switch of chat"})
    assert startup.tick(20.1).stopped_by is None
    said = feed(startup, exit_(21, 0))
    assert (said.outcome, said.stopped_by) == ("failed", "a switch of chat")


def test_a_tokenizer_of_its_own_is_known_to_the_classification() -> None:
    argv = ["python", "-m", "sglang.launch_server", "--model-path", "/m"]
    for more, path in (
        ([], None),
        (["--tokenizer-path", "/t"], "/t"),
        (["--tokenizer-path", "/m"], None),
    ):
        startup = Startup()
        feed(startup, launch(argv=[*argv, *more]))
        assert startup.context.tokenizer_path == path


def test_a_port_that_is_taken_is_a_cause_that_stands() -> None:
    startup = Startup()
    feed(startup, launch())
    line = "ERROR:    [Errno 98] error while attempting to bind on address ('0.0.0.0', 30000): address already in use"
    feed(startup, raw(5, f"{line}\n"))
    crash = startup.failures.crash
    assert crash is not None
    found = root_cause(startup, crash)
    assert (found.cause, found.sure) == ("port-taken", True)


@pytest.mark.parametrize(
    ("line", "phase"),
    [
        ("INFO:     Started server process [7]", "binding"),
        ("INFO:     Application startup complete.", "importing"),
    ],
)
def test_the_server_process_begins_to_bind(line: str, phase: str) -> None:
    startup = Startup()
    said = feed(startup, launch(), raw(5, f"{line}\n"))
    assert said.phase == phase


@pytest.mark.parametrize("place", [74, 75])
def test_a_capture_is_named_at_the_begin_of_its_line(place: int) -> None:
    text = "Capture cuda graph".ljust(place, "x") + " begin. avail mem"
    said = feed(Startup(), launch(), log(5, text))
    assert (said.phase == "capturing") is (place + len(" begin") <= 80)


@pytest.mark.parametrize(
    ("event", "moved"),
    [
        (log(50, "The server is fired up and ready to roll!"), True),
        (log(50, "SIGTERM received. Draining"), True),
        (log(50, "Health check failed. Server couldn't get a response from detokenizer"), False),
        (log(50, "Health check request received during startup"), False),
    ],
)
def test_which_lines_are_motion(event: dict[str, Any], moved: bool) -> None:
    startup = Startup()
    feed(startup, launch(), event)
    assert (startup.motion.last == 50) is moved


@pytest.mark.parametrize(("code", "shown"), [(None, "unknown status"), (3, "status 3")])
def test_the_status_of_an_exit_is_shown(code: int | None, shown: str) -> None:
    startup = Startup()
    said = feed(startup, launch(), exit_(5, code))
    later = startup.tick(60.0)
    assert any(shown in line for line in (*said.evidence, *later.evidence))


@pytest.mark.parametrize(("length", "cut"), [(80, False), (81, True)])
def test_the_name_of_a_growing_cache_is_cut_at_eighty(length: int, cut: bool) -> None:
    startup = serving(10.0)
    feed(startup, {"t": 20, "kind": "cache", "grown": ["n" * length]})
    (name,) = startup.compiling
    assert name.endswith("… grows") is cut


@pytest.mark.parametrize(("quiet", "told"), [(9.5, False), (10.5, True)])
def test_what_moved_last_is_told_after_ten_seconds(quiet: float, told: bool) -> None:
    startup = Startup()
    feed(startup, launch(), raw(5, "a line\n"))
    lines = startup.tick(startup.motion.last + quiet).evidence
    assert any("last moved" in line for line in lines) is told


def test_the_memory_of_the_gpus_is_told_in_gib() -> None:
    startup = Startup()
    said = feed(startup, launch(), gpus(5, 1024, 2048))
    assert "2 GPUs at 0 %, 1.0 to 2.0 of 96 GiB used" in said.evidence


def test_an_engine_that_serves_is_not_yet_proven_and_no_other_is() -> None:
    startup = serving(10.0)
    assert "not yet proven by a generation" in startup.tick(11).evidence
    failing = feed(startup, *(timeout(20.0 + 20 * number) for number in range(4)))
    assert failing.outcome == "unresponsive"
    assert "not yet proven by a generation" not in failing.evidence


def test_a_traceback_is_read_from_the_first_line_on() -> None:
    startup = Startup()
    text = 'Traceback (most recent call last):\n  File "x.py", line 1, in f\nValueError: first\n'
    feed(startup, launch(), raw(1, text), exit_(2, 1))
    assert any("ValueError: first" in line for line in startup.tick(60).evidence)
