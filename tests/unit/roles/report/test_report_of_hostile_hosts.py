"""One host's answers cost the other hosts neither the report nor their last screens."""

from __future__ import annotations

import copy
import json
import random
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from roles.readiness import results
from roles.readiness.follow import FollowResult
from roles.readiness.subject import Subject
from roles.remote import failing, follow
from roles.remote.follow import Reply
from roles.report import last_screen, report, result
from roles.report.result import Result
from roles.switch import operations
from sglangctl.startup.summary import Summary

KIMI = Subject("kimi", "sglang-kimi.service", "kimi-k2.5", 8000)
ODD: tuple[Any, ...] = (
    *(None, True, 0, -1, 3, 1e300, "", "x", "ready", "\x1b[31m", "\ud800", "x" * 70_000),
    *([], {}, [None], [[]], [{}], {"a": [1]}, ["ready"], [{"passed": [1]}]),
)


class Host(SimpleNamespace):
    __hash__ = object.__hash__


def nested(depth: int) -> Any:
    found: Any = 1
    for _ in range(depth):
        found = {"a": found}
    return found


@pytest.fixture
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.setenv(report.FOLDER_VARIABLE, str(tmp_path))
    for name in ("RESULTS", "SWITCHES", "LISTS", "FALLBACKS"):
        monkeypatch.setattr(report, name, {})
        monkeypatch.setattr(result, name, getattr(report, name))
    monkeypatch.setattr(operations, "SWITCHES", report.SWITCHES)
    monkeypatch.setattr(failing, "MESSAGES", {"good": ["it failed"], "bad": ["it failed too"]})
    hosts = [Host(name=name, connector_data={}) for name in ("good", "bad")]
    return SimpleNamespace(
        is_executing=True,
        inventory=hosts,
        activated_hosts=set(hosts),
        failed_hosts=set(),
        ops={host: {} for host in hosts},
        get_op_order=list,
    )


def finished(state: Any, tmp_path: Path) -> list[dict[str, Any]]:
    handler = report.Report(state, "sglang")
    for host in state.inventory:
        handler.host_disconnect(state, host)
    (file,) = tmp_path.glob("*/report.json")
    assert "<h2>good " in file.with_suffix(".html").read_text()
    return list(json.loads(file.read_text())["report"])


def test_what_is_nested_deep_is_left_out(state: Any, tmp_path: Path) -> None:
    """Python reads 900 levels, and cannot write them."""
    proof = {"warm": nested(900), "acceptance": {"speeds": [nested(900)]}}
    summary = Summary()
    summary.feed({"t": 1.0, "kind": "generate", **proof})
    followed = FollowResult("served", summary, {}, "1-a")
    document = {"v": 1, "verify": {"status": 0, "outcome": "ready", "memory": nested(400)}}
    found = results.of_verify(KIMI, [json.dumps(document)])
    report.RESULTS["bad"] = {"kimi": results.with_start(found, followed)}
    report.RESULTS["good"] = {"kimi": Result("kimi", "ready", exit=0, sentence="it serves")}
    good, bad = finished(state, tmp_path)
    assert good["engines"][0]["sentence"] == "it serves"
    assert bad["engines"][0]["outcome"] == "ready"


def test_events_of_a_switch_have_a_size(
    state: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    events = [
        {"t": 1.0, "kind": "switch", "text": "x" * 10**6},
        {"t": 2.0, "kind": "switch", "step": nested(900)},
        {"t": 3.0, "kind": "switch", "text": "moving on"},
    ]
    monkeypatch.setattr(follow, "ask", lambda *_: Reply(events, "ticket", 9, "0", None))
    monkeypatch.setattr(operations.program, "path", lambda: "/p")
    link: Any = SimpleNamespace(host=state.inventory[1])
    operations.follow_switch(link, "kimi", "ticket")
    kept = report.SWITCHES["bad"]["kimi"]
    assert [one["t"] for one in kept] == [1.0, 3.0]
    assert len(json.dumps(kept)) < 5000
    assert finished(state, tmp_path)[1]["switches"]["kimi"][1]["text"] == "moving on"


def test_a_last_screen_that_breaks_is_that_hosts_alone(
    state: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    said: list[str] = []

    def lines(failure: last_screen.Failure, _: str | None) -> list[str]:
        if failure.host == "good":
            raise TypeError("unhashable")
        return ["what failed: it"]

    monkeypatch.setattr(report.last_screen, "lines", lines)
    monkeypatch.setattr(report.logger, "info", said.append)
    monkeypatch.setattr(report.logger, "error", said.append)
    monkeypatch.setattr(report, "page", lambda _: 1 / 0)
    handler = report.Report(state, "sglang")
    handler.finish()
    assert "what failed: it" in said
    assert any("good: internal error" in line for line in said)
    assert any("not whole" in line and "ZeroDivisionError" in line for line in said)


def test_mutated_answers_of_verify(state: Any, tmp_path: Path) -> None:
    good = {
        "v": 1,
        "verify": {
            **{"name": "kimi", "outcome": "failed", "cause": "disk-full", "status": 1},
            **{"sentence": "it is down", "checks": [{"name": "a", "passed": None, "detail": "d"}]},
            **{"tokens": 3, "tokens_per_s": 1.5, "ttft_s": 0.1, "accept_length": None},
            **{"stopped_by": None, "memory": {"taken": {"weights_gib": 1.0}, "estimated": None}},
        },
    }
    random_, refused, took = random.Random(9), 0, 0
    for number in range(1500):
        document: Any = copy.deepcopy(good)
        parts = [document, document["verify"], document["verify"]["checks"][0]]
        for part in random_.sample(parts, 1 if number else 0):
            part[random_.choice(list(part))] = copy.deepcopy(random_.choice(ODD))
        try:
            found = results.of_verify(KIMI, [json.dumps(document)])
        except results.Unusable:
            refused += 1
            continue
        took += 1
        results.lines(found)
        report.RESULTS["bad"] = {"kimi": found}
        if number % 100 == 0:
            report.page(report.document(state, "sglang"))
    assert took > 40 and refused > 200
