"""The answers of an engine beside those of the one before it: noise is none, a broken one is told."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

import pytest

from sglangctl.engine.canaries import (
    LIMIT_NATS,
    PROMPTS,
    TOKENS,
    Agreement,
    Answer,
    compare,
    record,
    safe,
)
from sglangctl.engine.http import Endpoint
from tests.support.http_engine import Engine, serving
from tests.support.language_model import Model

LIMIT_S = 60.0


def answers_of(model: Model, native: bool = True, logprobs: bool = True) -> tuple[Answer, ...]:
    with serving(Engine(answers=model.answer)) as engine:
        found, fault = record(Endpoint("127.0.0.1", engine.port), "tiny", native, logprobs, LIMIT_S)
    assert fault is None and len(found) == len(PROMPTS)
    kept = json.loads(json.dumps([asdict(one) for one in found]))
    again = tuple(one for one in map(Answer.read, kept) if one is not None)
    assert again == found
    return again


def beside(before: tuple[Answer, ...], model: Model, logprobs: bool = True) -> Agreement:
    with serving(Engine(answers=model.answer)) as engine:
        return compare(Endpoint("127.0.0.1", engine.port), before, logprobs, LIMIT_S)


def test_the_same_engine_agrees() -> None:
    found = beside(answers_of(Model()), Model())
    assert (found.alike, found.cost_nats, found.own_nats) == (len(PROMPTS), 0.0, 0.0)
    assert found.lost_nats == pytest.approx(0.0, abs=1e-6)
    assert found.differences() == [] and "6 of 6" in found.said()


def test_near_ties_that_turn_are_no_alarm() -> None:
    """Other kernels: some answers are others, and none of it is worse."""
    found = beside(answers_of(Model(noise=0.12)), Model(noise=0.11))
    assert found.alike < len(PROMPTS)
    assert found.cost_nats is not None and found.cost_nats < LIMIT_NATS / 2
    assert found.differences() == []


def test_other_weights_are_told() -> None:
    found = beside(answers_of(Model()), Model(weights=1))
    assert found.cost_nats is not None and found.cost_nats > 1
    assert "nats each here" in found.differences()[0] and "0.1 at most" in found.differences()[0]


def test_a_model_that_is_less_sure_of_the_same_is_told() -> None:
    """A wrong scale: the most probable token is the same one, so no answer changes."""
    found = beside(answers_of(Model()), Model(heat=2.0))
    assert (found.alike, found.cost_nats) == (len(PROMPTS), 0.0)
    assert "less sure" in found.differences()[0]


@pytest.mark.parametrize("said", [0.0, 0.5, 1e14])
@pytest.mark.parametrize("native", [True, False])
def test_what_is_no_logarithm_of_a_probability_makes_no_engine_worse(
    native: bool, said: float
) -> None:
    """Of an engine before it that computes none, or computes them wrong."""
    model = Model()

    def odd(path: str, document: dict[str, Any]) -> Any:
        found = model.answer(path, document)
        assert found is not None
        status, answer = found
        if native:
            for row in answer["meta_info"].get("output_token_logprobs") or ():
                row[0] = said
        else:
            logprobs = answer["choices"][0]["logprobs"]
            logprobs["token_logprobs"] = [said for _ in logprobs["token_logprobs"]]
        return status, answer

    with serving(Engine(answers=odd)) as engine:
        before, _ = record(Endpoint("127.0.0.1", engine.port), "tiny", native, True, LIMIT_S)
    assert before and all(one.ids and not one.logprobs for one in before)
    found = beside(before, model)
    assert (found.cost_nats, found.lost_nats) == (0.0, None) and found.differences() == []


def test_decoding_that_is_broken_is_told() -> None:
    """Prompts are read right: what it is asked to weigh is as before."""
    model = Model()
    model.decodes = Model(weights=9)
    found = beside(answers_of(Model()), model)
    assert found.cost_nats == 0.0
    assert "its decoding is broken" in found.differences()[0]


@pytest.mark.parametrize("weights,told", [(0, False), (3, True)])
def test_a_vllm_before_it(weights: int, told: bool) -> None:
    found = beside(answers_of(Model(), native=False), Model(weights=weights, noise=0.05))
    assert found.lost_nats is not None
    assert bool(found.differences()) == told


@pytest.mark.parametrize("weights,told", [(0, False), (3, True)])
def test_a_text_alone_is_weighed_too(weights: int, told: bool) -> None:
    before = tuple(Answer(one.prompt, one.text) for one in answers_of(Model()))
    found = beside(before, Model(weights=weights))
    assert found.cost_nats is not None and found.lost_nats is None
    assert bool(found.differences()) == told


@pytest.mark.parametrize("weights,told", [(0, False), (3, True)])
def test_without_logprobs_the_beginnings_count(weights: int, told: bool) -> None:
    model = Model(weights=weights)
    model.logprobs = False
    found = beside(answers_of(Model(), logprobs=False), model)
    assert found.cost_nats is None
    assert bool(found.differences()) == told


def test_an_engine_that_could_crash_of_it_is_asked_for_no_logprobs() -> None:
    with serving(Engine(answers=Model().answer)) as engine:
        where = Endpoint("127.0.0.1", engine.port)
        found, _ = record(where, "tiny", True, False, LIMIT_S)
        compare(where, found, False, LIMIT_S)
        asked = [document for _, document, _ in engine.requests if document]
    assert asked and not any(one["return_logprob"] for one in asked)
    assert not any("logprob_start_len" in one or "top_logprobs_num" in one for one in asked)
    assert not any(one.logprobs for one in found)


@pytest.mark.parametrize(
    "speculates,version,expected",
    [
        (False, None, True),
        (False, "0.4.1", True),
        (True, "0.5.22", False),
        (True, "0.5.23", True),
        (True, "0.6.0.post1", True),
        (True, None, False),
        (True, "main", False),
    ],
)
def test_who_may_be_asked_for_logprobs(
    speculates: bool, version: str | None, expected: bool
) -> None:
    assert safe(speculates, version) is expected


def test_an_old_vllm_that_refuses_a_field_is_asked_plainly() -> None:
    def answer(path: str, asked: dict[str, Any]) -> tuple[int, Any] | None:
        if "return_token_ids" in asked:
            return 400, {"message": "extra fields not permitted"}
        return Model().answer(path, asked)

    with serving(Engine(answers=answer)) as engine:
        found, fault = record(Endpoint("127.0.0.1", engine.port), "tiny", False, True, LIMIT_S)
    assert fault is None and all(one.text and not one.ids for one in found)


@pytest.mark.parametrize(
    "body",
    [
        {},
        {"text": ""},
        {"text": 3},
        [1],
        {"text": "x", "meta_info": {"output_token_logprobs": 7}, "output_ids": "y"},
        {"text": "x", "meta_info": {"output_token_logprobs": [[None, 1], ["a", 2]]}},
        {"text": "x", "meta_info": {"output_token_logprobs": [[0.1, "z", None]]}},
        {"text": "x", "meta_info": {"input_token_logprobs": [[None, 4]], "input_top_logprobs": 1}},
    ],
)
def test_odd_answers_are_no_answers(body: Any) -> None:
    before = answers_of(Model())
    with serving(Engine(answers=lambda path, asked: (200, body))) as engine:
        where = Endpoint("127.0.0.1", engine.port)
        record(where, "tiny", True, True, LIMIT_S)
        found = compare(where, before, True, LIMIT_S)
    assert found.cost_nats is None
    assert found.fault is not None or found.differences()


def test_an_engine_that_refuses_says_why() -> None:
    with serving(Engine(answers=lambda path, asked: (503, {"error": "busy"}))) as engine:
        where = Endpoint("127.0.0.1", engine.port)
        found, fault = record(where, "tiny", True, True, LIMIT_S)
        compared = compare(where, (Answer("a", "b"),), True, LIMIT_S)
    assert found == () and fault is not None and "503: busy" in fault
    assert compared.differences() == [] and "503" in compared.said()


def test_a_slow_engine_is_asked_no_longer_than_the_limit() -> None:
    found, fault = record(Endpoint("127.0.0.1", 9), "tiny", True, True, 0.0)
    assert found == () and fault is not None and "in time" in fault


def test_an_engine_that_says_more_than_it_was_asked_for_is_cut() -> None:
    """It becomes a file, and the next engine's prompt."""
    body = {"text": "x" * 99_999, "output_ids": list(range(9_999)), "meta_info": {}}
    with serving(Engine(answers=lambda path, asked: (200, body))) as engine:
        found, _ = record(Endpoint("127.0.0.1", engine.port), "tiny", True, True, LIMIT_S)
    assert all(len(one.text) == 1000 and len(one.ids) == TOKENS for one in found)


@pytest.mark.parametrize("logprobs", [True, False])
def test_an_engine_that_answers_nothing_is_told(logprobs: bool) -> None:
    """Seen with weights that were shuffled, on the real engine: it was "could not be compared"."""

    class Mute(Model):
        def native(self, asked: dict[str, Any]) -> tuple[int, Any]:
            status, body = super().native(asked)
            return status, {**body, "text": "", "output_ids": []}

        def decode(self, ids: Sequence[int], count: int) -> list[tuple[float, int]]:
            return super().decode(ids, 0)

    model = Mute(weights=1)
    model.logprobs = logprobs
    found = beside(answers_of(Model()), model, logprobs)
    assert found.fault is None and found.alike == 0
    assert found.differences()


def test_an_engine_that_answered_nothing_before_is_no_measure() -> None:
    mute = tuple(Answer(prompt, "") for prompt in PROMPTS[:2])
    found = beside(mute, Model())
    assert found.differences() == [] and "answered nothing" in found.said()
    assert beside((*mute, *answers_of(Model())), Model()).asked == len(PROMPTS)
