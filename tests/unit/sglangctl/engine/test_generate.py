from __future__ import annotations

import json
import os
import time

import pytest

from sglangctl.engine import accept_length
from sglangctl.engine.accept_length import Counts, between
from sglangctl.engine.generate import fault_of, generate, message_of, repeated_piece
from sglangctl.engine.http import Endpoint
from sglangctl.state.config import Readiness
from tests.support.http_engine import Engine, serving

PLAIN = Readiness()


def where(engine: Engine, api_key: str | None = None) -> Endpoint:
    return Endpoint("127.0.0.1", engine.port, api_key=api_key, ours=lambda: [os.getpid()])


def test_a_streamed_answer_with_its_speed() -> None:
    with serving(Engine(token_delay_s=0.05)) as engine:
        made = generate(where(engine), "tiny", PLAIN, 10)
    assert (made.status, made.text_ok, made.fault) == (200, True, None)
    assert made.text == "Paris is the capital."
    assert made.tokens == 5
    assert made.ttft_s is not None and 0.04 <= made.ttft_s <= 1.0
    # Four tokens after the first, 0.05 s each.
    assert made.tokens_per_s is not None and 5 <= made.tokens_per_s <= 21
    path, document, _ = engine.requests[0]
    assert path == "/v1/chat/completions"
    assert document is not None
    assert document["messages"] == [{"role": "user", "content": PLAIN.prompt}]
    assert "temperature" not in document  # the model's own sampling defaults, as clients get them


def test_pieces_of_several_tokens_are_counted_by_the_engine() -> None:
    with serving(Engine(tokens=20, token_delay_s=0.02)) as engine:
        made = generate(where(engine), "tiny", PLAIN, 10)
    assert made.tokens == 20
    assert made.tokens_per_s is not None and made.tokens_per_s > 40


def test_reasoning_counts_as_text() -> None:
    with serving(Engine(reasoning=["Let", " me", " think"], words=[])) as engine:
        made = generate(where(engine), "tiny", PLAIN, 10)
    assert made.text_ok is True
    assert made.text == "Let me think"


@pytest.mark.parametrize(
    ("words", "fault"),
    [
        ([], "empty"),
        (["", " ", "\n"], "empty"),
        (["\0"] * 9, "NUL"),
        (["\ufffd", " ", "\0"], "NUL"),
        (["!"] * 64, "'!' over and over"),
        ([" the"] * 20, "over and over"),
    ],
)
def test_text_of_a_broken_model_is_not_sane(words: list[str], fault: str) -> None:
    with serving(Engine(words=words)) as engine:
        made = generate(where(engine), "tiny", PLAIN, 10)
    assert made.text_ok is False
    assert fault in (made.fault or "")


@pytest.mark.parametrize(
    "text",
    [
        "Paris.",
        "no",
        "ha ha ha",
        "bodetimebjUT Tokenizer_')}glang\ufffd %}\\\" NAMEtoken torch",
        "1111",
    ],
)
def test_odd_but_real_text_is_sane(text: str) -> None:
    assert fault_of(text) is None


def test_repetition_needs_the_whole_text() -> None:
    assert repeated_piece("ab" * 8) == "ab"
    assert repeated_piece("ab" * 8 + "a") == "ab"
    assert repeated_piece("ab" * 8 + "c") is None
    assert repeated_piece("ab" * 7) is None


@pytest.mark.parametrize(("expect", "ok"), [("paris", True), ("Berlin", False)])
def test_the_expected_answer(expect: str, ok: bool) -> None:
    with serving(Engine()) as engine:
        made = generate(where(engine), "tiny", Readiness(expect=expect), 10)
        other = generate(where(engine), "tiny", Readiness(expect=expect), 10, prompt="Hello?")
    assert made.text_ok is ok
    assert ok or "Berlin" in (made.fault or "")
    assert other.text_ok is True  # the expectation belongs to the inventory's prompt alone


def test_an_error_answer_is_told_with_its_message() -> None:
    with serving(Engine(chat_status=400)) as engine:
        made = generate(where(engine), "tiny", PLAIN, 10)
    assert (made.status, made.text_ok) == (400, False)
    assert made.fault == "/v1/chat/completions answered 400: no chat template"


def test_the_key_is_sent_and_never_shown() -> None:
    with serving(Engine(api_key="sk-planted")) as engine:
        with_key = generate(where(engine, "sk-planted"), "tiny", PLAIN, 10)
        without = generate(where(engine), "tiny", PLAIN, 10)
    assert with_key.text_ok is True
    assert without.status == 401
    assert "sk-planted" not in repr(where(engine, "sk-planted"))
    assert "sk-planted" not in str(with_key.event())


def test_a_server_that_trickles_ends_at_the_limit() -> None:
    with serving(Engine(trickle=True)) as engine:
        began = time.monotonic()
        made = generate(where(engine), "tiny", PLAIN, 0.5)
        assert time.monotonic() - began < 3.0
    assert (made.status, made.error, made.text_ok) == (None, "TimeoutError", False)
    assert made.text == "Paris is the capital."  # what came is kept


def test_no_server() -> None:
    with serving(Engine()) as engine:
        pass
    made = generate(where(engine), "tiny", PLAIN, 2)
    assert (made.status, made.error, made.text_ok) == (None, "ConnectionRefusedError", False)


def test_event_keeps_the_beginning_of_the_raw_answer() -> None:
    with serving(Engine(words=["word "] * 500 + ["end"])) as engine:
        event = generate(where(engine), "tiny", PLAIN, 10).event()
    assert event["status"] == 200
    assert len(event["body"]) == 2000
    assert len(event["text"]) == 500


@pytest.mark.parametrize("version", ["0.5.9", "0.5.16", "0.5.23"])
def test_accept_length_of_each_version(version: str) -> None:
    with serving(Engine(version=version, tokens=60, verify_calls=20)) as engine:
        first = generate(where(engine), "tiny", PLAIN, 10)
        found = accept_length.measure(where(engine), "tiny", PLAIN, 10, first)
    assert found.length == pytest.approx(3.0)
    expected = {"0.5.9": "/generate", "0.5.16": "(meta_info)", "0.5.23": "spec_tokens_details"}
    assert expected[version] in found.source
    prompts = {
        (document or {}).get("text") or (document or {}).get("messages", [{}])[0].get("content")
        for path, document, _ in engine.requests
        if path != "/metrics"
    }
    assert prompts == {PLAIN.prompt, *accept_length.PROMPTS}


def test_accept_length_from_counters_when_we_are_alone() -> None:
    engine = Engine(version="none", tokens=60)
    made = {"calls": 0}

    def metrics() -> str:
        served = sum(path != "/metrics" for path in engine.paths())
        made["calls"] = served
        return (
            f'sglang:generation_tokens_total{{model="x",is_streaming="True"}} {60 * served}.0\n'
            f'sglang:spec_verify_calls_total{{model="x"}} {30 * served}.0\n'
        )

    engine.metrics = metrics
    with serving(engine):
        first = generate(where(engine), "tiny", PLAIN, 10)
        found = accept_length.measure(where(engine), "tiny", PLAIN, 10, first)
    assert found.length == pytest.approx(2.0)
    assert "/metrics" in found.source


def test_accept_length_cannot_be_told() -> None:
    with serving(Engine(version="none")) as engine:
        first = generate(where(engine), "tiny", PLAIN, 10)
        found = accept_length.measure(where(engine), "tiny", PLAIN, 10, first)
    assert found.length is None
    assert "does not report" in found.source
    others = between(Counts(0, 0), Counts(100, 50), ours=60)
    assert (others.length, others.source) == (None, "others used the engine at the same time")
    assert between(Counts(0, 0), Counts(60, 0), ours=60).length is None


HUGE = b"1" + b"0" * 400


@pytest.mark.parametrize(
    "piece",
    [
        b'{"choices": 5}',
        b'{"choices": true}',
        b"[]",
        b"7",
        b"not JSON",
        b'{"usage": {"completion_tokens": %s}}' % HUGE,
        b'{"usage": {"completion_tokens": 1e400}}',
        b'{"usage": {"completion_tokens": NaN}}',
        b'{"usage": {"completion_tokens": -1}}',
        b'{"usage": {"completion_tokens": "5"}}',
    ],
)
def test_an_odd_piece_is_a_fault_of_the_generation(piece: bytes) -> None:
    with serving(Engine(piece=piece)) as engine:
        made = generate(where(engine), "tiny", PLAIN, 10)
    assert (made.status, made.text_ok) == (200, False)
    assert (made.fault or "").startswith("a piece of the answer ")
    assert json.loads(json.dumps(made.event(), allow_nan=False))["text_ok"] is False


@pytest.mark.parametrize("length", [HUGE, b"1e400", b"NaN", b'"2"', b"[]"])
def test_an_odd_accept_length_is_unknown(length: bytes) -> None:
    details = b'{"spec_verify_ct": 3, "spec_accept_length": %s}' % length
    piece = b'{"sglext": {"spec_tokens_details": %s}}' % details
    with serving(Engine(piece=piece)) as engine:
        made = generate(where(engine), "tiny", PLAIN, 10)
    assert (made.text_ok, made.accept_length, made.verify_calls) == (True, None, None)


@pytest.mark.parametrize("value", ["1.2.3", "e", "+", "1e400", "1" + "0" * 400])
def test_counters_that_are_no_numbers(value: str) -> None:
    engine = Engine(version="none", tokens=60)
    engine.metrics = lambda: (
        f"sglang:generation_tokens_total {value}\nsglang:spec_verify_calls_total {value}\n"
    )
    with serving(engine):
        first = generate(where(engine), "tiny", PLAIN, 10)
        found = accept_length.measure(where(engine), "tiny", PLAIN, 10, first)
    assert found.length is None and "no such counter" in found.source


def test_counts_without_a_bound_are_none() -> None:
    engine = Engine(version="0.5.16", tokens=10**400, verify_calls=10**399)
    with serving(engine):
        first = generate(where(engine), "tiny", PLAIN, 10)
        assert first.text_ok is False
        found = accept_length.measure(where(engine), "tiny", PLAIN, 10, first)
    assert found.length is None


def test_message_of_hostile_answers() -> None:
    assert message_of(b'{"detail": "Not Found"}') == "Not Found"
    assert message_of(b'{"error": "Unauthorized"}') == "Unauthorized"
    assert message_of(b"\xff\x00<html>\n gateway") == "\\xff\x00<html> gateway"
    assert len(message_of(b"x" * 10_000)) == 200
