"""Not everything is a chat: vectors, scores, and models without a chat template."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import pytest

from sglangctl.engine import kinds
from sglangctl.engine.generate import Generation, generate, with_text
from sglangctl.engine.http import Endpoint, ask
from sglangctl.engine.walks import walk
from sglangctl.state.config import Readiness
from tests.support.engine_config import ENGINE
from tests.support.http_engine import Engine, serving

EMBEDS = {"is_generation": False, "architectures": ["Qwen3ForCausalLM"]}
SCORES = {"is_generation": False, "architectures": ["Qwen2ForSequenceClassification"]}


def where(engine: Engine) -> Endpoint:
    return Endpoint("127.0.0.1", engine.port)


@pytest.mark.parametrize(
    ("info", "kind"),
    [
        (None, kinds.CHATTING),
        ({"is_generation": True}, kinds.CHATTING),
        ({"is_generation": "false"}, kinds.CHATTING),
        (EMBEDS, kinds.EMBEDDING),
        ({"is_generation": False}, kinds.EMBEDDING),
        ({"is_generation": False, "architectures": 3}, kinds.EMBEDDING),
        (SCORES, kinds.SCORE),
        ({"is_generation": False, "architectures": ["Qwen3ForRewardModel"]}, kinds.SCORE),
    ],
)
def test_the_kind_is_what_the_engine_says(info: Any, kind: kinds.Kind) -> None:
    with serving(Engine(model_info=info)) as engine:
        assert kinds.of(where(engine), 5) is kind


@pytest.mark.parametrize(
    ("info", "vectors", "fault"),
    [
        (EMBEDS, lambda n: [0.1 * n, 0.5, -0.25], None),
        (SCORES, lambda n: [1.5 + n], None),
        (SCORES, lambda n: 0.5 + n, None),
        (EMBEDS, lambda n: [0.1] * (3 + n), "3 and 4 numbers"),
        (EMBEDS, lambda n: [], "0 and 0 numbers"),
        (EMBEDS, lambda n: [0.1, 0.2, 0.3], "same vector"),
        (EMBEDS, lambda n: [0.0, 0.0, 0.0], "equal"),
        (SCORES, lambda n: [0.7], "same vector"),
        (EMBEDS, lambda n: [0.1, float("nan"), n], "not a finite number"),
        (EMBEDS, lambda n: [0.1, float("inf"), n], "not a finite number"),
        (EMBEDS, lambda n: [0.1, None, n], "not a finite number"),
        (EMBEDS, lambda n: {"a": n}, "not a finite number"),
    ],
)
def test_numbers_have_to_make_sense(
    info: dict[str, Any], vectors: Callable[[int], Any], fault: str | None
) -> None:
    with serving(Engine(model_info=info, vectors=vectors)) as engine:
        kind = kinds.of(where(engine), 5)
        made = kind.send(where(engine), kind.request("tiny", "A text.", 8), 5)
    assert made.status == 200 and made.text_ok is (fault is None)
    if fault is None:
        assert "2 vectors of " in made.text
    else:
        assert fault in str(made.fault)


def test_a_refusal_or_silence_is_a_fault() -> None:
    with serving(Engine()) as engine:
        there = where(engine)
        other = replace(kinds.EMBEDDING, path="/nothing")
        refused = other.send(there, {}, 5)
    assert refused.text_ok is False and "404" in str(refused.fault)
    assert kinds.EMBEDDING.send(there, {}, 2).text_ok is False


def test_a_broken_document_is_no_vector() -> None:
    for text in ("[]", "{}", '{"data": 3}', '[{"embedding": [1]}, 4]', "[[1]]", "null"):
        assert kinds.fault_of(kinds.vectors(json.loads(text))) is not None


def test_a_base_model_completes_instead() -> None:
    with serving(Engine(template=False, words=["A", " river", "."])) as engine:
        chat = generate(where(engine), "tiny", Readiness(), 5)
        assert kinds.without_template(chat)
        request = kinds.COMPLETION.request("tiny", "Once upon a time", 8)
        made = with_text(kinds.COMPLETION.send(where(engine), request, 5), Readiness())
    assert made.text_ok is True and made.text == "A river." and made.tokens == 3
    assert "messages" not in request and request["prompt"] == "Once upon a time"


def test_another_refusal_is_none_of_a_missing_template() -> None:
    with serving(Engine(refuses=lambda document: "too long")) as engine:
        assert not kinds.without_template(generate(where(engine), "tiny", Readiness(), 5))


@pytest.mark.parametrize(
    ("kind", "paths"), [(kinds.EMBEDDING, 3), (kinds.SCORE, 3), (kinds.COMPLETION, 7)]
)
def test_each_kind_walks_its_own_paths(kind: kinds.Kind, paths: int) -> None:
    config = replace(ENGINE, served_name="tiny")
    info = {"chunked_prefill_size": 200, "max_total_num_tokens": 5000}
    with serving(Engine(template=False, info=info, context=5000)) as engine:
        there = where(engine)
        answers = ask(there, "/server_info", 5), ask(there, "/v1/models", 5)
        walks = walk(there, config, kind, *answers)
        assert "/v1/chat/completions" not in engine.paths()
    assert len(walks.walked) == paths and not walks.faulty
    assert all(one.again_s is not None for one in walks.walked)


def test_requests_at_the_same_time_keep_their_order_and_lose_no_defect(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A defect in one of the threads left an answer out, and nothing said so."""

    def answer(where: Endpoint, request: Mapping[str, Any], *_: Any) -> Generation:
        time.sleep(request["after"])
        return Generation(200, None, request["after"])

    monkeypatch.setattr(kinds, "stream_of", answer)
    asked = [{"after": seconds} for seconds in (0.03, 0.0, 0.01)]
    got = kinds.CHATTING.send_together(Endpoint("127.0.0.1", 1), asked, 5)
    assert [one.seconds for one in got] == [0.03, 0.0, 0.01]
    with pytest.raises(KeyError):
        kinds.CHATTING.send_together(Endpoint("127.0.0.1", 1), [*asked, {}], 5)
