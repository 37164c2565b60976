"""Serving, ready, degraded, unresponsive: what counts as an answer, and whose it is."""

from __future__ import annotations

from typing import Any

import pytest

from sglangctl.startup.fold import Startup
from sglangctl.state.config import Limits
from tests.support.startup_events import (
    DETOKENIZER,
    MAIN,
    TP0,
    TP1,
    UVICORN,
    exit_,
    feed,
    generate,
    gpus,
    http,
    launch,
    log,
    process,
    processes,
    serving,
    socket,
    timeout,
)


def test_health_after_our_own_bind_is_serving() -> None:
    startup = Startup()
    assert feed(startup, launch(), log(5, UVICORN)).phase == "warming"
    assert feed(startup, http(5.5, 503)).outcome == "pending"
    said = feed(startup, http(7, 200))
    assert (said.phase, said.outcome) == ("serving", "serving")
    assert any("Uvicorn running on" in line for line in said.evidence)


def test_an_answer_before_our_own_bind_is_someone_elses() -> None:
    startup = Startup()
    said = feed(startup, launch(), log(1, "Load weight begin. avail mem=1 GB"), http(2, 200))
    assert said.outcome == "pending"
    assert any("nothing shows that it is this engine" in line for line in said.evidence)
    assert feed(startup, log(3, "The server is fired up and ready to roll!")).outcome == "pending"
    # Asked at 4.5, bound at 5: the answer that came at 5.5 is not ours either.
    assert feed(startup, log(5, UVICORN), http(5.5, 200, 1.0)).outcome == "pending"
    assert feed(startup, http(6.6, 200, 1.0)).outcome == "serving"


@pytest.mark.parametrize("path", ["/v1/models", "/model_info", "/server_info", "/ready", "/ping"])
def test_other_paths_are_not_readiness(path: str) -> None:
    startup = Startup()
    said = feed(startup, launch(), log(5, UVICORN), http(7, 200, path=path))
    assert said.outcome == "pending"


def test_the_sockets_owner_decides_over_the_log() -> None:
    startup = Startup()
    feed(startup, launch(), log(5, UVICORN), socket(5.1, 999, False))
    assert feed(startup, http(7, 200)).outcome == "pending"
    assert feed(startup, log(7.5, "The server is fired up and ready to roll!")).outcome == "pending"
    said = feed(startup, socket(8, 1, True), http(9.5, 200))
    assert said.outcome == "serving"
    assert any("pid 1" in line and "unit" in line for line in said.evidence)


def test_a_socket_event_alone_identifies_a_silent_engine() -> None:
    startup = Startup()
    said = feed(startup, launch(), socket(5, 1, True), http(7, 200))
    assert said.outcome == "serving"


def test_another_port_is_not_ours() -> None:
    startup = Startup()
    other = UVICORN.replace("30000", "31000")
    assert feed(startup, launch(), log(5, other), http(7, 200)).outcome == "pending"
    assert feed(startup, {**socket(8, 1, True), "port": 31000}, http(9.5, 200)).outcome == "pending"


def test_the_engines_own_word_counts_once_the_port_is_ours() -> None:
    startup = Startup()
    feed(startup, launch(), log(5, UVICORN))
    said = feed(startup, log(6, "The server is fired up and ready to roll!"))
    assert said.outcome == "serving"


def test_ready_is_earned_by_a_generation_with_sane_text() -> None:
    startup = serving()
    assert feed(startup, generate(11, text_ok=None)).outcome == "serving"
    said = feed(startup, generate(12, text_ok=False))
    assert said.outcome == "serving"
    assert any("makes no sense" in line for line in said.evidence)
    assert feed(startup, generate(13, status=500)).outcome == "serving"
    assert feed(startup, generate(14)).outcome == "ready"


def test_ready_needs_our_model() -> None:
    startup = serving(served_name="kimi")
    said = feed(startup, generate(11, model="other"))
    assert said.outcome == "serving"
    assert said.evidence == ("model: serves other, not kimi",)
    assert feed(startup, http(12, 200, path="/v1/models", models=["kimi"])).outcome == "ready"
    assert feed(startup, generate(13, models=["other"])).outcome == "serving"


def test_ready_needs_every_rank() -> None:
    startup = serving(tensor_parallel=2)
    feed(startup, processes(10.5, MAIN, TP0, DETOKENIZER))
    said = feed(startup, generate(11))
    assert (said.outcome, said.evidence) == ("serving", ("ranks: 1 of 2 ranks alive",))
    assert feed(startup, processes(12, MAIN, TP0, TP1, DETOKENIZER)).outcome == "ready"


@pytest.mark.parametrize(
    ("accept", "outcome"), [(1.0, "degraded"), (1.19, "degraded"), (1.2, "ready"), (2.9, "ready")]
)
def test_accept_length_below_the_floor_is_degraded(accept: float, outcome: str) -> None:
    startup = serving(drafter={"path": "/models/d", "algorithm": "EAGLE3"})
    assert feed(startup, generate(11, accept_length=accept)).outcome == outcome


def test_an_accept_length_that_cannot_be_told_is_said() -> None:
    startup = serving(drafter={"path": "/models/d", "algorithm": "EAGLE3"})
    said = feed(startup, generate(11, accept_length=None))
    assert said.outcome == "ready"
    assert "accept length: cannot tell" in said.evidence


@pytest.mark.parametrize(
    "fields",
    [{"speculative": ""}, {"speculative": "EAGLE", "speculative_faults": ["steps: 3, not 5"]}],
)
def test_speculative_decoding_that_is_not_as_declared_is_degraded(fields: dict[str, Any]) -> None:
    startup = serving(drafter={"path": "/models/d", "algorithm": "EAGLE3"})
    said = feed(startup, generate(11, accept_length=2.0, **fields))
    assert said.outcome == "degraded"
    assert said.evidence[0].startswith("speculative decoding")
    assert feed(serving(), generate(11, **fields)).outcome == "ready"


def test_the_floor_is_the_inventorys() -> None:
    startup = serving(drafter={"algorithm": "NGRAM"}, min_accept_length=2.5)
    assert feed(startup, generate(11, accept_length=2.0)).outcome == "degraded"
    # A deploy may change the floor while it serves: the proof brings it along.
    said = feed(startup, generate(12, accept_length=2.0, min_accept_length=1.5))
    assert said.outcome == "ready"


def test_without_a_drafter_accept_length_says_nothing() -> None:
    assert feed(serving(), generate(11, accept_length=0.5)).outcome == "ready"


def test_idle_and_silent_is_unresponsive_within_thirty_seconds_and_recovers() -> None:
    startup = serving(10)
    feed(startup, timeout(36))
    assert startup.tick(39.9).outcome == "serving"
    said = startup.tick(40.1)
    assert (said.outcome, said.phase) == ("unresponsive", "serving")
    assert any("health probes failed" in line for line in said.evidence)
    assert feed(startup, http(60, 200)).outcome == "serving"


def test_no_probe_no_verdict() -> None:
    startup = serving(10)
    assert startup.tick(500).outcome == "serving"


def test_the_engines_own_failed_check_is_a_failed_probe() -> None:
    startup = serving(10)
    text = (
        "Health check failed. Server couldn't get a response from detokenizer for last 20 seconds."
    )
    feed(startup, log(31, text))
    assert startup.tick(41).outcome == "unresponsive"


BATCH = (
    "Prefill batch, #new-seq: 1, #new-token: {new}, #cached-token: 0, token usage: 0.00, "
    "#running-req: 0, #queue-req: 0, #pending-token: {pending}, input throughput (token/s): 9"
)


def test_a_long_prefill_is_not_a_hang() -> None:
    startup = serving(10)
    t = 12.0
    for pending in range(40000, 0, -4096):
        # 18 s for each part; the health probes in between fail after 20 s.
        feed(startup, log(t, BATCH.format(new=4096, pending=pending), "TP0"), timeout(t + 5))
        t += 18.0
        assert startup.tick(t - 0.1).outcome == "serving", t
    assert feed(startup, http(t, 200)).outcome == "serving"


def test_the_last_part_of_a_prefill_is_work() -> None:
    startup = serving(10)
    feed(startup, log(12, BATCH.format(new=4096, pending=0), "TP0"), timeout(35), timeout(45))
    assert startup.tick(60).outcome == "serving"
    feed(startup, log(61, BATCH.format(new=1, pending=0), "TP0"))
    assert startup.tick(92).outcome == "unresponsive", "a batch of one token is a health probe"


@pytest.mark.parametrize("sign", ["clients", "gpu", "cores"])
def test_signs_of_work_during_the_first_part_of_a_long_prefill(sign: str) -> None:
    """The batch's line comes when it is done: until then only these tell load from a hang."""
    startup = serving(10)
    t = 12.0
    while t < 70.0:
        if sign == "clients":
            feed(startup, timeout(t, 1.0, clients=1))
        elif sign == "gpu":
            feed(startup, gpus(t, 80000, busy=100), timeout(t + 0.1))
        else:
            busy = process(2, "sglang::scheduler", "R", cpu_s=t * 1.9)
            feed(startup, processes(t, MAIN, busy), timeout(t + 0.1))
        assert startup.tick(t + 1).outcome == "serving", t
        t += 2.0


def test_under_load_two_failed_probes_and_no_token_for_two_minutes() -> None:
    startup = serving(10)
    feed(startup, log(20, BATCH.format(new=4096, pending=9000), "TP0"), timeout(45))
    assert startup.tick(141).outcome == "serving", "one failed probe is not two"
    feed(startup, timeout(141.5))
    assert startup.tick(142).outcome == "unresponsive"


def test_flat_processor_time_is_a_hang_whoever_is_connected() -> None:
    startup = serving(10)
    t = 11.0
    while t < 41:
        still = process(2, "sglang::scheduler", "S", cpu_s=50.0)
        feed(startup, processes(t, MAIN, still), timeout(t + 0.1, 1.0, clients=3))
        t += 1.0
    assert startup.tick(t).outcome == "unresponsive"


def test_nobody_connected_is_idle_whatever_the_last_batch_was() -> None:
    startup = serving(10)
    feed(startup, log(12, BATCH.format(new=4096, pending=9000), "TP0"), timeout(36, clients=0))
    assert startup.tick(43).outcome == "unresponsive"


def test_an_idle_scheduler_that_spins_on_one_core_is_idle() -> None:
    startup = serving(10)
    t = 11.0
    while t < 41:
        spin = process(2, "sglang::scheduler", "R", cpu_s=t)
        feed(startup, processes(t, MAIN, spin), gpus(t, 80000), timeout(t + 0.1, 1.0))
        t += 1.0
    assert startup.tick(t).outcome == "unresponsive"


def test_a_generation_that_hangs_while_health_answers() -> None:
    """A frozen detokenizer with /server_info polled: /health stays 200 (trace cpu-05)."""
    startup = serving(10)
    feed(startup, generate(12), http(20, 200))
    said = feed(startup, generate(50, status=None, seconds=35.0, text_ok=None), http(51, 200))
    assert said.outcome == "unresponsive"
    assert "health answers" in said.evidence[0]


def test_a_dead_detokenizer_does_not_keep_the_scheduler_from_health_probes() -> None:
    startup = serving(10)
    for t in range(12, 41, 2):
        feed(startup, log(t, BATCH.format(new=1, pending=0), "TP0"), timeout(t + 1, 1.0))
    assert startup.tick(41).outcome == "unresponsive"


def test_a_port_that_went_to_somebody_else_is_no_answer_of_ours() -> None:
    startup = Startup()
    feed(startup, launch(), socket(5, 1, True), http(7, 200))
    feed(startup, socket(9, 999, False), http(11, 200), http(21, 200))
    assert startup.tick(30).outcome == "serving"
    assert startup.tick(38).outcome == "unresponsive"


def test_stopping_on_purpose_is_not_unresponsive() -> None:
    startup = serving(10)
    text = "SIGTERM received. signum=None frame=None. Draining requests and shutting down..."
    feed(startup, log(20, text), http(21, 503, 0.01), http(31, 503, 0.01))
    assert startup.tick(90).outcome == "serving"
    said = feed(startup, processes(91, MAIN), exit_(92, -9))
    assert (said.outcome, said.cause) == ("failed", "killed")


def test_a_probe_that_failed_just_before_the_stop_was_seen() -> None:
    startup = serving(10)
    feed(startup, http(20, 503, 0.01), log(20.3, "Gracefully exiting... Remaining number of"))
    assert startup.tick(90).outcome == "serving"


def test_limits_are_values() -> None:
    startup = Startup(Limits(unresponsive_idle_s=3.0, start_s=20.0))
    feed(startup, launch(), log(5, UVICORN), http(7, 200), timeout(9, 1.0))
    assert startup.tick(10.1).outcome == "unresponsive"
    late = Startup(Limits(start_s=20.0))
    assert feed(late, launch(), log(19, "x")).outcome == "pending"
    assert late.tick(20.1).outcome == "deadline"


def test_a_start_past_its_deadline_may_still_serve() -> None:
    startup = Startup(Limits(start_s=20.0))
    feed(startup, launch(), log(19, "x"))
    assert startup.tick(21).outcome == "deadline"
    assert feed(startup, log(22, UVICORN), http(24, 200)).outcome == "serving"


def test_another_engine_is_not_judged() -> None:
    startup = Startup()
    argv = ["/venv/bin/python", "/venv/bin/vllm", "serve", "/models/m"]
    launched = {"t": 0, "kind": "launch", "argv": argv}
    said = feed(startup, launched, log(4, UVICORN), http(5, 200), exit_(6, 0))
    assert (said.phase, said.outcome, said.cause) == ("launching", "pending", None)
    assert said.evidence == ("not an SGLang start: nothing is judged",)
    assert feed(Startup(), launch(engine="vllm"), exit_(1, 1)).outcome == "pending"
    assert feed(Startup(), launch(engine="sglang"), exit_(1, 1)).outcome == "failed"


def test_an_answer_is_dated_by_its_own_time() -> None:
    """A caller's clock may have ticked past an event that it has still to read."""
    startup = Startup()
    feed(startup, launch(), log(5, UVICORN))
    startup.tick(6.5)
    assert feed(startup, http(5.9, 200, 1.0)).outcome == "pending", "asked at 4.9, before the bind"
