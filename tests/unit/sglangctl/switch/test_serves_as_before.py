"""Whether a unit of somebody else is what it was before a switch, on a server that answers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest

from sglangctl.engine.http import Answer, Endpoint
from sglangctl.proc import sockets
from sglangctl.switch import back, recorded_unit
from sglangctl.systemd.unit import Unit
from tests.support.http_engine import Engine, serving
from tests.support.units import unit

US, OTHER = 100, 200


@dataclass(frozen=True)
class Running(Unit):
    def pids(self) -> list[int]:
        return [US]


def missing(
    monkeypatch: pytest.MonkeyPatch, engine: Engine, owner: int = US, active: str = "active"
) -> tuple[str | None, list[str]]:
    """What is missing of an engine that served `tiny`, and what was asked for it."""
    found = Running("vllm.service", unit(active).properties)
    monkeypatch.setattr(back, "find", lambda name: found)
    monkeypatch.setattr(sockets, "owners", lambda port: {owner})
    with serving(engine) as served:
        recorded: dict[str, Any] = {"unit": "vllm.service", "ports": [served.port]}
        said = back.missing_of({**recorded, "models": ["tiny"]})
    return said, engine.paths()


CHAT, TEXT, VECTORS = "/v1/chat/completions", "/v1/completions", "/v1/embeddings"


@pytest.mark.parametrize(
    ("engine", "asked"),
    [
        (Engine(), [CHAT]),
        (Engine(template=False), [CHAT, TEXT]),
        (Engine(chat_status=404), [CHAT, TEXT, VECTORS]),
    ],
    ids=["chat", "base model", "embeddings"],
)
def test_every_kind_of_model_can_serve_again(
    monkeypatch: pytest.MonkeyPatch, engine: Engine, asked: list[str]
) -> None:
    assert missing(monkeypatch, engine) == (None, ["/v1/models", *asked]), "each is asked once"


@pytest.mark.parametrize(
    ("engine", "more", "said"),
    [
        (Engine(chat_status=500), {}, "it answers no completion"),
        (Engine(model="other"), {}, "it serves other, not tiny"),
        (Engine(api_key="k"), {}, "does not answer /v1/models"),
        (Engine(), {"owner": OTHER}, "it does not listen on port"),
        (Engine(), {"active": "activating"}, "it is activating"),
    ],
)
def test_what_is_missing_is_said(
    monkeypatch: pytest.MonkeyPatch, engine: Engine, more: dict[str, Any], said: str
) -> None:
    assert said in str(missing(monkeypatch, engine, **more)[0])


def recorded(monkeypatch: pytest.MonkeyPatch, *listening: int) -> recorded_unit.RecordedUnit:
    """What is written down of a unit that listens there."""
    found = Running("vllm.service", unit().properties)
    all_of_them = [sockets.Listener("0.0.0.0", port, 1) for port in listening]
    monkeypatch.setattr(recorded_unit, "show", lambda names: {names[0]: found})
    monkeypatch.setattr(sockets, "owners", lambda port, pids: [US])
    monkeypatch.setattr(sockets, "chosen_by_kernel", lambda: range(32768, 61000))
    monkeypatch.setattr(sockets, "listeners", lambda: all_of_them)
    made = recorded_unit.record("vllm.service")
    assert made is not None
    return made


@pytest.mark.parametrize("key", [None, "k"], ids=["open", "with a key"])
@pytest.mark.parametrize("beside", [1, 60999])
def test_a_port_at_which_its_processes_meet_need_not_come_back(
    monkeypatch: pytest.MonkeyPatch, key: str | None, beside: int
) -> None:
    """It is another one after each start, and was waited for until the limit, 45 minutes."""
    with serving(Engine(api_key=key)) as served:
        found = recorded(monkeypatch, served.port, beside)
    assert found.ports == (served.port,)
    assert found.models == (None if key else ("tiny",))


def test_of_what_speaks_no_http_the_ports_count_that_the_kernel_did_not_choose(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert recorded(monkeypatch, 1, 2, 60999).ports == (1, 2)


def test_a_port_that_never_answers_is_waited_for_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """An engine's ranks listen on dozens of them, for each other."""
    asked: list[int] = []

    def silent(where: Endpoint, path: str, timeout_s: float) -> Answer:
        asked.append(where.port)
        return Answer(path, None, "TimeoutError", timeout_s)

    monkeypatch.setattr(recorded_unit, "ask", silent)
    assert recorded(monkeypatch, 1, 2).ports == (1, 2)
    assert asked == [1, 2]
