"""What answers mean: health probes, our own generations, and when it is time to look again."""

from __future__ import annotations

import pytest

from sglangctl.startup import verdict
from sglangctl.startup.fold import Startup
from sglangctl.startup.proof import Proof
from tests.support.startup_events import (
    DETOKENIZER,
    MAIN,
    TP0,
    feed,
    generate,
    http,
    launch,
    processes,
    raw,
    serving,
    timeout,
)


def test_a_generation_that_is_not_answered_for_twenty_seconds_hangs() -> None:
    for status, seconds, hung in ((None, 20.0, True), (None, 19.9, False), (500, 30.0, False)):
        proof = Proof()
        assert proof.feed(1, generate(1, status=status, seconds=seconds)) is False
        assert (proof.hung, proof.came) == (hung, False), (status, seconds)
    proof = Proof()
    proof.feed(1, generate(1))
    assert (proof.came, proof.ok, proof.error) == (True, True, "")


def test_the_engine_s_own_health_check_fails_after_its_twenty_seconds() -> None:
    startup = serving()
    for t, status, seconds, dead in (
        (20, 503, 14.9, False),
        (40, 504, 20.0, False),
        (60, 503, 15.0, True),
    ):
        feed(startup, http(t, status, seconds))
        assert startup.service.engine_says_dead is dead, t
    assert startup.service.failed == 3


def test_the_next_look_is_a_second_away_while_a_probe_has_failed() -> None:
    startup = serving(10)
    assert startup.due is None or startup.due > 12
    feed(startup, timeout(30, 2.0))
    assert startup.due is not None and startup.due <= startup.now + 1.0


def test_what_is_known_of_health() -> None:
    assert verdict._readiness(serving())[1].health == 200
    assert verdict._readiness(Startup())[1].health is None


def test_the_error_of_an_estimate_from_the_last_start() -> None:
    said = feed(
        Startup(),
        launch(history={"importing": 20.0, "loading": 100.0, "capturing": 50.0}),
        raw(1, "a warning\n"),
    )
    # 0.65 of 120 s, and 0.95 of the 50 s in which something is compiled.
    assert (said.eta_s, said.eta_error_s) == (170.0, pytest.approx(125.5))


def test_nobody_is_lost_before_anybody_was_there() -> None:
    startup = Startup()
    feed(startup, launch(), processes(1, MAIN))
    assert (startup.ranks.alive, startup.ranks.lost, startup.ranks.lost_sure) == (0, (), False)
    feed(startup, processes(2, MAIN, TP0, DETOKENIZER), processes(3, MAIN, TP0, DETOKENIZER))
    assert startup.ranks.alive == 1
