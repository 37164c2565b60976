"""The paths that users walk, walked once before `ready` and once more at the end."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from sglangctl.engine import kinds
from sglangctl.engine.http import Endpoint, ask
from sglangctl.engine.walks import BATCH, Walked, Walks, walk
from sglangctl.state.config import Drafter, EngineConfig, Readiness
from tests.support.engine_config import ENGINE
from tests.support.http_engine import Engine, serving

INFO = {"chunked_prefill_size": 200, "max_total_num_tokens": 5000, "grammar_backend": "xgrammar"}


def config(drafter: bool = False, **readiness: Any) -> EngineConfig:
    made = replace(ENGINE, readiness=Readiness(**readiness))
    return replace(made, served_name="tiny", drafter=Drafter() if drafter else None)


def walked(engine: Engine, config: EngineConfig, said: list[str] | None = None) -> Walks:
    where = Endpoint("127.0.0.1", engine.port)

    def say(name: str, number: int, total: int) -> None:
        if said is not None:
            said.append(f"{name} {number}/{total}")

    info, models = ask(where, "/server_info", 5), ask(where, "/v1/models", 5)
    return walk(where, config, kinds.of(where, 5), info, models, say)


def chats(engine: Engine) -> list[dict[str, Any]]:
    return [document for path, document, _ in engine.requests if document and "chat" in path]


def named(walks: Walks, name: str) -> Walked:
    return next(one for one in walks.walked if one.name == name)


def tokens(document: dict[str, Any]) -> int:
    return sum(len(message["content"].split()) for message in document["messages"])


@pytest.mark.slow
def test_what_users_do_is_walked_and_repeated() -> None:
    said: list[str] = []
    with serving(Engine(info=INFO, context=5000, token_delay_s=0.05)) as engine:
        walks = walked(engine, config(), said)
        asked = chats(engine)
    assert walks.mode == "standard" and not walks.faulty
    assert said[0] == "the same prompt again 1/7" and said[6].endswith(" 7/7")
    assert "once more" in said[7] and len(said) == 14
    assert [one for one in walks.walked if one.again_s is None or one.skipped] == []
    assert engine.most_in_flight == BATCH
    assert any(tokens(document) > INFO["chunked_prefill_size"] for document in asked)
    assert any(document.get("temperature") == 0 for document in asked)
    assert any(document.get("top_p") for document in asked)
    assert any("response_format" in document for document in asked)
    # The answers themselves cost little: what is compiled is compiled for one token as well.
    assert max(document["max_tokens"] for document in asked) <= 4


def test_with_a_drafter_several_are_asked_both_ways() -> None:
    with serving(Engine(info=INFO, context=5000)) as engine:
        walked(engine, config(drafter=True))
        asked = chats(engine)
    assert sum(document.get("temperature") == 0 for document in asked) == 2 * (BATCH + 1)


@pytest.mark.slow
def test_what_is_compiled_once_is_no_fault_and_what_is_slow_again_is_seen() -> None:
    """Measured on two H200s: 85 s for the second request with the same beginning, once."""
    seen: set[str] = set()

    def compiles(document: dict[str, Any]) -> float:
        if document.get("top_p"):
            return 0.4
        new = "temperature" in document and "greedy" not in seen
        seen.add("greedy" if "temperature" in document else "")
        return 0.5 if new else 0.0

    with serving(Engine(info=INFO, context=5000, compiles=compiles)) as engine:
        walks = walked(engine, config(first_token_s=0.2))
    greedy, sampled = named(walks, "temperature 0"), named(walks, "top-p sampling")
    assert greedy.first_s is not None and greedy.first_s >= 0.5
    assert greedy.again_s is not None and greedy.again_s < 0.2
    assert sampled.again_s is not None and sampled.again_s >= 0.4
    assert not walks.faulty


def test_a_path_that_fails_ends_the_proof_there() -> None:
    def refuses(document: dict[str, Any]) -> str | None:
        return "kernel broken" if document.get("temperature") == 0 else None

    with serving(Engine(info=INFO, context=5000, refuses=refuses)) as engine:
        walks = walked(engine, config())
    assert walks.faulty and walks.walked[-1].name == "temperature 0"
    assert "kernel broken" in str(walks.walked[-1].fault)


def test_an_engine_without_a_grammar_is_asked_for_no_schema_or_may_refuse_it() -> None:
    def refuses(document: dict[str, Any]) -> str | None:
        return "no grammar" if "response_format" in document else None

    with serving(Engine(info=INFO, context=5000, refuses=refuses)) as engine:
        refused = named(walked(engine, config()), "a JSON schema")
    with serving(Engine(info={**INFO, "grammar_backend": "none"}, context=5000)) as engine:
        without = named(walked(engine, config()), "a JSON schema")
    assert refused.fault is None and "no grammar" in str(refused.skipped)
    assert "no grammar backend" in str(without.skipped)


def test_the_long_prompt_is_what_fits_where_a_chunk_does_not() -> None:
    with serving(Engine(info={**INFO, "chunked_prefill_size": 8192}, context=700)) as engine:
        walked(engine, config())
        longest = max(map(tokens, chats(engine)))
    assert 350 < longest < 700
    with serving(Engine(info={}, context=None)) as engine:
        long = named(walked(engine, config()), "a prompt longer than a chunk")
    assert "does not say" in str(long.skipped)


def test_short_and_own_prompts() -> None:
    with serving(Engine(info=INFO, context=5000)) as engine:
        walks = walked(engine, config(warm="short"))
    assert [one.name for one in walks.walked] == ["the same prompt again", "several at once"]
    with serving(Engine(info=INFO, context=5000)) as engine:
        walks = walked(engine, config(warm=("One?", "Two?")))
        asked = chats(engine)
    assert len(walks.walked) == 2 and walks.mode == "own prompts"
    assert {document["messages"][0]["content"] for document in asked} == {"One?", "Two?"}


def test_nothing_that_the_engine_says_of_itself_raises() -> None:
    odd = {"chunked_prefill_size": "x", "max_total_num_tokens": [], "max_req_input_len": 1e300}
    with serving(Engine(info=odd, context=5000)) as engine:
        assert not walked(engine, config()).faulty
    with serving(Engine(info=["no", "mapping"], context=-4)) as engine:  # type: ignore[arg-type]
        assert not walked(engine, config()).faulty
