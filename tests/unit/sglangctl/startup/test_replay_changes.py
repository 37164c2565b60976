"""A recorded journal, judged again."""

from __future__ import annotations

from sglangctl.startup.replay import changes
from tests.support.startup_events import (
    DETOKENIZER,
    MAIN,
    TP0,
    UVICORN,
    exit_,
    http,
    launch,
    log,
    processes,
    raw,
)


def test_what_is_told_is_what_changed() -> None:
    events = [
        launch(),
        raw(1, "a\n"),
        raw(2, "b\n"),
        {"t": 3, "kind": "verdict", "phase": "serving", "outcome": "ready"},
        log(4, UVICORN),
        http(5, 200),
        exit_(9, 1),
    ]
    told = [(one.phase, one.outcome) for one in changes(events)]
    assert told == list(dict.fromkeys(told)) and len(told) >= 4
    assert told[0] == ("launching", "pending") and ("serving", "serving") in told
    assert ("serving", "ready") not in told and told[-1] == ("serving", "failed")


def test_an_empty_journal_says_nothing() -> None:
    assert list(changes([])) == []


def test_a_journal_that_ends_with_a_stopped_rank_says_so() -> None:
    stopped = {**TP0, "state": "T"}
    looks = [processes(t, MAIN, TP0, DETOKENIZER) for t in (1, 2)]
    looks.append(processes(10, MAIN, stopped, DETOKENIZER))
    told = list(changes([launch(), *looks]))
    assert (told[-1].outcome, told[-1].cause, told[-1].t) == ("stalled", "rank-stopped", 10)
