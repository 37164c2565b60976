"""`ready` only after the users' paths were walked, and what is said while they are."""

from __future__ import annotations

from typing import Any

import pytest

from sglangctl.startup.fold import Startup
from sglangctl.startup.warm import findings
from tests.support.startup_events import (
    DETOKENIZER,
    MAIN,
    TP0,
    feed,
    generate,
    http,
    process,
    processes,
    serving,
    timeout,
)

EVERYONE = (MAIN, TP0, DETOKENIZER)
CICC = "/usr/local/cuda/nvvm/bin/cicc --c++17"


def warm(t: float, path: str = "the same prompt again", number: int = 1) -> dict[str, Any]:
    return {"t": t, "kind": "warm", "path": path, "number": number, "of": 7}


def proof(t: float, **path: Any) -> dict[str, Any]:
    paths = [{"name": "the same prompt again", "first_s": 85.0, "again_s": 0.2, **path}]
    warm = {"mode": "standard", "seconds": 90.0, "limit_s": 10, "paths": paths}
    return generate(t, warm=warm)


def test_it_warms_and_says_what_compiles_and_since_when() -> None:
    startup = serving(10)
    said = feed(startup, warm(11))
    assert (said.phase, said.outcome) == ("warming", "serving")
    assert said.progress == "the same prompt again (1 of 7)"
    for t in range(12, 40):
        compiler = process(50, CICC, "R", cpu_s=float(t))
        said = feed(startup, processes(t, *EVERYONE, compiler), http(t + 0.5, 200, 0.4))
    assert said.progress == "the same prompt again (1 of 7); compiling for 28 s: cicc"
    assert any("kernels are being compiled" in line for line in said.evidence)
    said = feed(startup, proof(97))
    assert (said.phase, said.outcome, said.progress) == ("serving", "ready", None)


def test_a_long_compile_for_our_own_request_is_no_alarm_and_silence_without_one_is() -> None:
    startup = serving(10)
    feed(startup, warm(11))
    for t in range(12, 200):
        compiler = process(50, CICC, "R", cpu_s=float(t))
        said = feed(startup, processes(t, *EVERYONE, compiler))
        if t % 21 == 0:
            said = feed(startup, timeout(t + 0.5))
        assert (said.phase, said.outcome) == ("warming", "serving"), t
    said = feed(startup, processes(201, *EVERYONE), timeout(260))
    assert said.outcome == "unresponsive"


def test_a_cache_that_grows_is_compiling() -> None:
    startup = serving(10)
    said = feed(startup, warm(11), {"t": 12, "kind": "cache", "grown": ["Triton's cache"]})
    assert said.progress is not None and "Triton's cache grows" in said.progress


def test_compiling_that_stopped_and_began_again_is_counted_from_its_beginning() -> None:
    startup = serving(10)
    feed(startup, warm(11), {"t": 12, "kind": "cache", "grown": ["a"]})
    said = feed(startup, {"t": 60, "kind": "cache", "grown": ["a"]}, warm(63))
    assert said.progress is not None and "for 3 s" in said.progress


def test_a_path_that_is_slow_when_repeated_degrades() -> None:
    said = feed(serving(10), proof(30, again_s=14.2))
    assert said.outcome == "degraded"
    assert "14.2 s" in said.evidence[0] and "first_token_s" in said.evidence[0]


def test_a_path_that_does_not_work_is_not_ready() -> None:
    said = feed(serving(10), proof(30, fault="/v1/chat/completions answered 500: boom"))
    assert said.outcome == "serving" and "boom" in said.evidence[0]


def test_a_journal_without_paths_is_judged_as_before() -> None:
    assert feed(serving(10), generate(12)).outcome == "ready"


@pytest.mark.parametrize(
    "event",
    [
        {"kind": "warm"},
        {"kind": "warm", "path": 3, "number": "x", "of": []},
        {"kind": "warm", "path": "\x1b[2J", "number": 1e300, "of": -1},
        {"kind": "cache", "grown": "abc"},
        {"kind": "cache", "grown": [None, 3]},
        {"kind": "generate", "status": 200, "warm": [1]},
        {"kind": "generate", "status": 200, "warm": {"paths": {"a": 1}, "limit_s": "x"}},
        {"kind": "generate", "status": 200, "warm": {"paths": [{"name": 3, "again_s": "x"}, 4]}},
    ],
)
def test_no_event_raises(event: dict[str, Any]) -> None:
    startup: Startup = serving(10)
    said = startup.feed({"t": 11, **event})
    assert said.outcome == "serving" and "\x1b" not in (said.progress or "")


def accepted(**fields: Any) -> dict[str, Any]:
    return generate(30, acceptance={"worse": [], "unsure": [], "compared_with": None, **fields})


SLOWER = "one at a time: 12.5 ms between two tokens, accepted were 10.0 ms"


def test_a_slower_engine_is_degraded_or_not_ready_as_asked() -> None:
    assert feed(serving(10), accepted()).outcome == "ready"
    said = feed(serving(10), accepted(worse=[SLOWER]))
    assert said.outcome == "degraded" and "12.5 ms" in said.evidence[0]
    said = feed(serving(10), accepted(worse=[SLOWER], fail=True))
    assert said.outcome == "serving" and "12.5 ms" in said.evidence[0]
    assert feed(serving(10), accepted(unsure=[SLOWER], fail=True)).outcome == "ready"
    assert feed(serving(10), accepted(fault="no answer")).outcome == "degraded"


def test_an_acceptance_that_is_none_raises_nothing() -> None:
    for odd in ([1], {"worse": "x", "unsure": [3], "fail": "yes", "fault": 4}):
        assert feed(serving(10), generate(30, acceptance=odd)).outcome == "ready"


AGREED = {"said": "6 of 6 answers begin as before, 0.002 nats a token"}


def test_answers_that_agree_are_said() -> None:
    facts = findings(accepted(answers=AGREED))
    assert "0.002 nats" in facts["load"] and facts["load_worse"] == ()
    assert findings(accepted(answers=[3]))["load"] == findings(accepted())["load"]


def test_a_load_that_was_not_completed_hides_no_other_finding() -> None:
    facts = findings(accepted(fault="no answer", worse=["it answers otherwise"]))
    assert len(facts["load_worse"]) == 2
