"""What the staged engine says of itself stops a switch before it begins."""

from __future__ import annotations

import json
from contextlib import nullcontext
from typing import Any, cast

import pytest

from roles.remote.failing import HostFailed
from roles.remote.link import Answer, Link
from roles.switch import staged
from tests.support.blocked_host import whole_engine

REFUSED = {"id": "engine-arguments", "level": "fail", "seen": "it refuses --x", "fix": "drop it"}
OTHER = {"id": "engine-version", "level": "warn", "seen": "0.5.22 is installed", "fix": ""}
SKIPPED = {"id": "engine-unchecked", "level": "info", "seen": "a stand-in", "fix": ""}


class FakeLink:
    host = "h"

    def __init__(self, answer: Answer) -> None:
        self.answer, self.asked = answer, ("",)

    def run(self, *argv: str, wait_s: float, stdin: str) -> Answer:
        assert json.loads(stdin)["name"] == "e" and wait_s > 300
        self.asked = argv
        return self.answer


@pytest.fixture
def prove(monkeypatch: pytest.MonkeyPatch) -> Any:
    """(lines, errors) of the host -> what was printed; HostFailed passes through."""

    def run(lines: list[str], errors: list[str]) -> list[str]:
        printed: list[str] = []
        monkeypatch.setattr(staged, "signs_of_life", lambda host, title: nullcontext())
        monkeypatch.setattr(staged, "say", lambda host, text, fg: printed.append(text))
        engine = whole_engine("")
        link = FakeLink(Answer(False, lines, errors))
        staged.prove(cast("Link", link), engine)
        assert f"--release={engine.release.digest}" in link.asked
        return printed

    return run


def said(*findings: dict[str, str]) -> list[str]:
    return [json.dumps({"v": 1, "findings": findings})]


@pytest.mark.parametrize("at_gate", [True, False])
def test_parser_and_imports_are_left_to_a_gate(
    monkeypatch: pytest.MonkeyPatch, at_gate: bool
) -> None:
    monkeypatch.setattr(staged, "signs_of_life", lambda host, title: nullcontext())
    link = FakeLink(Answer(False, said(), []))
    staged.prove(cast("Link", link), whole_engine(""), at_gate=at_gate)
    assert ("--at-gate" in link.asked) is at_gate


def test_a_failure_stops_it_and_says_that_nothing_was_stopped(prove: Any) -> None:
    with pytest.raises(HostFailed) as failure:
        prove(said(OTHER, REFUSED), [])
    assert str(failure.value) == "it refuses --x: drop it\nwhat runs now was left alone"


def test_warnings_are_printed_and_stop_nothing(prove: Any) -> None:
    assert prove(said(OTHER, SKIPPED), []) == ["warn: 0.5.22 is installed"]


@pytest.mark.parametrize("lines", [[], ["[]"], ['{"findings": [{"id": 1}]}'], ["no json"]])
def test_a_host_that_could_not_look_fails(prove: Any, lines: list[str]) -> None:
    with pytest.raises(HostFailed, match=r"could not be checked.*systemd is gone"):
        prove(lines, ["systemd is gone"])
