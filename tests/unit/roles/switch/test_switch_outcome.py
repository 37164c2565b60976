"""The report's entry of a switch's start, whatever the host answers."""

from __future__ import annotations

import json
from types import SimpleNamespace
from typing import Any

import pytest

from roles.remote.failing import HostFailed
from roles.report.result import Result
from roles.switch import operations
from roles.switch.outcome import others_of, result_of
from sglangctl.switch.outcome import Outcome


def test_a_failure_has_its_cause_evidence_and_next_step() -> None:
    verdict = {
        "cause": "rank-died",
        "evidence": ["exit code: -9"],
        "phase": "loading",
        "phases": {"launching": 0.5, "loading": 2},
        "served_after_s": None,
    }
    sent = json.loads(json.dumps(Outcome("failed", "it failed", verdict, "s").document()))
    found = result_of("tiny", sent)
    assert (found.outcome, found.exit, found.cause) == ("failed", 1, "rank-died")
    assert found.phases == {"launching": 0.5, "loading": 2.0}
    assert found.evidence == ["exit code: -9"]
    assert "sglangctl bundle tiny" in str(found.next_step)


@pytest.mark.parametrize(
    ("word", "outcome", "status"),
    [("ready", "ready", 0), ("degraded", "degraded", 0), ("deadline", "deadline", 1),
     ("rank-stopped", "stalled", 1), ("unproven", "serving", 1), ("down", "failed", 1)],
)  # fmt: skip
def test_every_end_of_a_start_is_an_outcome(word: str, outcome: str, status: int) -> None:
    found = result_of("tiny", Outcome(word, "").document())
    assert (found.outcome, found.exit) == (outcome, status)


@pytest.mark.parametrize("junk", [None, 7, "x", [1], {"a": []}, float("nan")])
def test_fields_of_the_wrong_kind_are_absent_ones(junk: Any) -> None:
    names = ("outcome", "cause", "sentence", "phase", "phases", "served_after_s", "evidence")
    found = result_of("tiny", {name: junk for name in names})
    assert isinstance(found, Result)
    assert all(isinstance(line, str) for line in found.evidence)
    assert found.exit == 1


def test_what_a_switch_went_back_to_is_kept_for_the_last_screen(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def task(_link: Any, _argv: Any, tell: Any) -> str:
        tell({"kind": "step", "name": "back", "others": ["vllm.service serves"]})
        tell({"kind": "step", "name": "end", "status": 1, "text": "tiny: it failed"})
        return "1"

    monkeypatch.setattr(operations.follow, "task", task)
    kept: dict[str, dict[str, list[str]]] = {}
    monkeypatch.setattr(operations, "BACK", kept)
    link: Any = SimpleNamespace(host=SimpleNamespace(name="gpu1"))
    with pytest.raises(HostFailed, match="tiny: it failed"):
        operations.follow_switch(link, "tiny", "t")
    assert kept == {"gpu1": {"tiny": ["vllm.service serves"]}}


@pytest.mark.parametrize("junk", [None, 7, "x", {"a": 1}, [1, None, ""]])
def test_others_of_the_wrong_kind_are_none(junk: Any) -> None:
    assert others_of({"others": junk}) == []
