"""What an engine took of each GPU, and how that is told beside the estimate."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from roles.readiness import results
from sglangctl.engine import memory_taken
from sglangctl.engine.http import Endpoint, ask
from sglangctl.gpu.gpus import Gpu
from sglangctl.preflight import fit
from sglangctl.report import verify
from sglangctl.state.config import Preflight
from sglangctl.state.paths import Paths
from tests.support.engine_config import ENGINE
from tests.support.http_engine import Engine, serving
from tests.support.safetensors_files import shards, write

NEW = {
    **{"weight": 63.9, "kvcache": 22.125, "startup_available": 8.2, "token_capacity": 361000},
    **{"token_capacity_swa": None, "graph": {"decode": 1.5, "prefill": 0.25}},
}
"""As SGLang 0.5.23's build_memory_usage has it; 0.5.16 has one number for graphs."""
TAKEN = {"weights_gib": 63.9, "cache_gib": 22.125, "graphs_gib": 1.75, "tokens": 361000}
LLAMA = {
    **{"architectures": ["LlamaForCausalLM"], "num_hidden_layers": 2, "vocab_size": 32},
    **{"num_attention_heads": 4, "hidden_size": 64},
}


def asked(info: Any) -> dict[str, Any] | None:
    with serving(Engine(info=info)) as engine:
        return memory_taken.read(ask(Endpoint("127.0.0.1", engine.port), "/server_info", 5))


@pytest.mark.parametrize(
    ("said", "found"),
    [
        (NEW, TAKEN),
        ({**NEW, "graph": 1.75}, TAKEN),
        ({"weight": 1}, {**dict.fromkeys(TAKEN), "weights_gib": 1.0}),
        ({"weight": "x", "graph": [1]}, None),
        ({}, None),
        ([], None),
    ],
)
def test_what_server_info_says(said: Any, found: dict[str, Any] | None) -> None:
    assert asked({"internal_states": [{"memory_usage": said}]}) == found


def test_an_engine_that_says_nothing() -> None:
    assert asked({}) is None
    assert asked({"internal_states": 3}) is None
    assert memory_taken.read(None) is None


def test_the_estimate_of_an_engine_that_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shards(tmp_path / "model")
    write(tmp_path / "model/config.json", LLAMA)
    cards = [
        Gpu(index, "", "", "", None, None, total, None, None, None)
        for index, total in enumerate((97887, 81920))
    ]
    engine = replace(
        ENGINE, user="root", model=str(tmp_path / "model"), preflight=Preflight(mem_fraction=0.5)
    )
    monkeypatch.setattr(verify.gpus, "sample", lambda: cards)
    found = verify._memory(engine, Paths(tmp_path), TAKEN)
    assert found is not None and found["taken"] == TAKEN
    # The smaller one decides, and an engine on the other alone has its memory.
    assert found["estimated"]["cache_gib"] == round((81920 - 1024) * 0.5 / 1024, 3)
    assert found["estimated"]["tokens"] == (81920 - 1024) * 2**19 // (2 * 2 * 4 * 16 * 2)
    first = fit.expected(replace(engine, gpus=(0,)), Paths(tmp_path), cards)
    assert first is not None and first.total == 97887
    on_cpu = replace(engine, preflight=Preflight(device="cpu"))
    assert fit.expected(on_cpu, Paths(tmp_path), cards) is None
    assert fit.expected(engine, Paths(tmp_path), []) is None
    assert fit.expected(replace(engine, model="/nowhere"), Paths(tmp_path), cards) is None


def test_the_line_for_people() -> None:
    memory = {
        "taken": TAKEN,
        "estimated": {**TAKEN, "weights_gib": 63.7, "cache_gib": 21.8, "graphs_gib": 1.45},
    }
    assert results.memory_line(json.loads(json.dumps(memory))) == (
        "each GPU: weights 63.9 GiB (estimated 63.7), key/value cache 22.1 GiB (estimated 21.8), "
        "graphs 1.8 GiB (estimated 1.4), 361,000 tokens"
    )
    older = {**memory["estimated"], "graphs_gib": None}
    assert "graphs" not in (results.memory_line({"taken": TAKEN, "estimated": older}) or "")
    for nothing in (None, {}, {"taken": TAKEN, "estimated": None}, {"taken": 3, "estimated": 4}):
        assert results.memory_line(nothing) is None
