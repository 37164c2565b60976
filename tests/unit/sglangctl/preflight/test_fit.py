"""Whether a model and its cache fit the GPUs, by estimates that are held against known engines."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from sglangctl.diagnosis.finding import Finding
from sglangctl.preflight import estimate, fit
from sglangctl.state.config import Drafter, EngineConfig, Preflight
from tests.support.engine_config import ENGINE
from tests.support.inventory_case import engine as spec_of

GIB = 2**30
LLAMA = {
    "architectures": ["LlamaForCausalLM"],
    **{"num_hidden_layers": 32, "num_attention_heads": 32, "num_key_value_heads": 8},
    **{"hidden_size": 4096, "max_position_embeddings": 131072, "torch_dtype": "bfloat16"},
}
KIMI = {
    "architectures": ["KimiK25ForConditionalGeneration"],
    "text_config": {
        **{"num_hidden_layers": 61, "num_attention_heads": 64, "num_key_value_heads": 64},
        **{"kv_lora_rank": 512, "qk_rope_head_dim": 64, "max_position_embeddings": 262144},
    },
}
CARD = {"memory_total_mib": 97887, "processes": []}
ONE = replace(ENGINE, preflight=Preflight(mem_fraction=0.9))


def judged(
    engine: EngineConfig, gib: float, config: dict[str, Any], **card: Any
) -> dict[str, Finding]:
    found = list(fit.look(engine, [int(gib * GIB)], config, [{**CARD, **card}], {7}, {}))
    return {one.id: one for one in found}


@pytest.mark.parametrize(
    ("config", "more", "size"),
    [
        (LLAMA, {}, 2 * 32 * 8 * 128 * 2),
        (LLAMA, {"kv_cache_dtype": "fp8_e4m3"}, 2 * 32 * 8 * 128),
        (KIMI, {}, 61 * 576 * 2),
        ({**LLAMA, "head_dim": 64}, {}, 2 * 32 * 8 * 64 * 2),
        ({**LLAMA, "layer_types": ["full_attention"] * 32, "sliding_window": 4096}, {}, 131072),
        ({**LLAMA, "layer_types": ["full_attention", "linear_attention"]}, {}, None),
        ({**LLAMA, "sliding_window": 4096}, {}, None),
        ({**LLAMA, "sliding_window": 4096, "use_sliding_window": False}, {}, 131072),
        ({"num_hidden_layers": "x"}, {}, None),
        ({}, {}, None),
    ],
)
def test_the_bytes_of_a_token(
    config: dict[str, Any], more: dict[str, Any], size: int | None
) -> None:
    engine = replace(ENGINE, preflight=Preflight(**more))
    assert estimate.token_bytes(engine, config) == size


def test_ranks_share_heads_and_layers() -> None:
    four = replace(ENGINE, tensor_parallel=4)
    assert estimate.token_bytes(four, LLAMA) == 2 * 32 * 2 * 128 * 2
    many = replace(ENGINE, tensor_parallel=16)
    assert estimate.token_bytes(many, LLAMA) == 2 * 32 * 1 * 128 * 2
    staged = replace(four, preflight=Preflight(pipeline_parallel=2))
    assert estimate.token_bytes(staged, LLAMA) == 2 * 16 * 2 * 128 * 2
    replicas = replace(four, preflight=Preflight(attention_replicas=4))
    assert estimate.token_bytes(replicas, LLAMA) == 2 * 32 * 8 * 128 * 2


def test_the_kimi_host_fits() -> None:
    """547 GB on eight cards of 97,887 MiB at 0.94, as it is served: 20 GiB for the cache."""
    engine = replace(ENGINE, tensor_parallel=8, preflight=Preflight(mem_fraction=0.94))
    found = estimate.of(engine, 547 * 10**9, 0, KIMI, 97887, 97887, {})
    assert found.fits and found.weights == 547 * 10**9 // 8 // 2**20
    assert 20 * 1024 < found.cache < 26 * 1024
    assert 300_000 < (found.tokens or 0) < 400_000
    (only,) = fit.judge(engine, found, KIMI)
    assert only.level == "info" and "weights 63.7" in only.seen and "of 95.6 GiB free" in only.seen


def test_weights_that_cannot_fit_fail_and_those_that_may_are_a_warning() -> None:
    assert judged(ONE, 16, LLAMA)["gpu-memory"].level == "info"
    assert judged(ONE, 200, LLAMA)["gpu-memory"].level == "fail"
    assert judged(ONE, 88, LLAMA)["gpu-memory"].level == "warn"
    # Without a fraction SGLang may keep back less than is estimated.
    plain = replace(ONE, preflight=Preflight())
    assert judged(plain, 92, LLAMA)["gpu-memory"].level == "warn"
    assert judged(plain, 104, LLAMA)["gpu-memory"].level == "fail"
    converted = replace(ONE, preflight=replace(ONE.preflight, as_stored=False))
    assert judged(converted, 200, LLAMA)["gpu-memory"].level == "warn"
    assert judged(ONE, 160, {**LLAMA, "torch_dtype": "float32"})["gpu-memory"].level == "info"


def test_what_stays_on_a_gpu_is_not_free() -> None:
    there = judged(ONE, 70, LLAMA, processes=[(7, 90000), (8, 30000), (9, None)])
    assert there["gpu-memory"].level == "fail" and "of 66.3 GiB free" in there["gpu-memory"].seen
    assert judged(ONE, 70, LLAMA, processes=[(7, 90000)])["gpu-memory"].level == "info"
    # Held by others, which is a finding of its own: it is not told twice.
    rows = [{**CARD, "processes": [(8, 90000)]}]
    assert all(one.level == "info" for one in fit.look(ONE, [70 * GIB], LLAMA, rows, None, {}))


def test_a_context_that_does_not_fit() -> None:
    asked = replace(ONE, preflight=replace(ONE.preflight, context_length=131072))
    assert "gpu-context" not in judged(asked, 16, LLAMA)
    low = judged(asked, 80, LLAMA)["gpu-context"]
    assert low.level == "warn" and "131,072 (context-length)" in low.seen
    # Nobody asked for what the model could do.
    assert judged(ONE, 80, LLAMA)["gpu-context"].level == "info"


@pytest.mark.parametrize(("ranks", "level"), [(8, None), (6, "fail"), (1, None)])
def test_heads_that_the_ranks_cannot_share(ranks: int, level: str | None) -> None:
    engine = replace(ENGINE, tensor_parallel=ranks)
    found = {one.id: one for one in fit.look(engine, [], KIMI, [], set(), {})}
    assert (found["model-heads"].level if found else None) == level
    shared = replace(engine, preflight=Preflight(attention_replicas=6))
    assert ranks != 6 or not list(fit.heads(shared, KIMI))


def test_nothing_is_estimated_of_what_is_not_known() -> None:
    assert not list(fit.look(ONE, [0], LLAMA, [CARD], set(), {}))
    assert not list(fit.look(ONE, [GIB], {}, [CARD], set(), {}))
    assert not list(fit.look(ONE, [GIB], LLAMA, [{"memory_total_mib": None}], set(), {}))
    assert not list(fit.look(ONE, [GIB], LLAMA, [], set(), {}))


def test_sglangs_reserve_where_no_fraction_is_given() -> None:
    assert estimate.reserve(8192, 8, 1488, 97887) == 512 + 8192 * 1.5 + 1024 + 1488
    assert estimate.reserve(4096, 1, 496, 32607) == 512 + 4096 * 1.5 + 128 + 496
    assert estimate.reserve(1000, 1, 0, 81920) == 10 * 1024
    found = estimate.of(ENGINE, 16 * GIB, GIB, LLAMA, 32607, 32607, {})
    assert found.drafter == 1024 and 6.5 * 1024 < found.cache < 7 * 1024


@pytest.mark.parametrize(
    ("flags", "ranks", "config", "total", "mib"),
    [
        # 256 requests of 2 MiB, 58 sizes of a prefill of 8 MiB.
        ("", 1, LLAMA, 97887, 512 + 464),
        ("", 8, LLAMA, 97887, 1024 + 464),
        ("", 8, KIMI, 97887, 1024 + 1536),
        ("", 1, LLAMA, 32607, 96 + 400),
        ("", 1, LLAMA, 16384, 16 + 336),
        ("", 1, LLAMA, 183359, 1024 + 592),
        ("cuda-graph-max-bs-decode: 64", 8, LLAMA, 97887, 128 + 464),
        ("max-running-requests: 16", 8, LLAMA, 97887, 32 + 464),
        ("chunked-prefill-size: 2048", 1, LLAMA, 97887, 512 + 336),
        ("cuda-graph-backend-decode: disabled", 8, LLAMA, 97887, 464),
        ("cuda-graph-backend-prefill: disabled", 8, LLAMA, 97887, 1024),
        (
            "cuda-graph-backend-prefill: disabled, cuda-graph-backend-decode: disabled",
            *(8, LLAMA, 97887, 0),
        ),
        ("dp-size: 4, enable-dp-attention: true", 8, LLAMA, 97887, 1024 + 464 + 512 * 4 * 4.5),
    ],
)
def test_what_sglang_sets_aside_for_graphs(
    flags: str, ranks: int, config: dict[str, Any], total: int, mib: float
) -> None:
    settings = spec_of(f"flags: {{{flags}}}").preflight
    engine = replace(ENGINE, tensor_parallel=ranks, preflight=settings)
    assert estimate.graphs(engine, config, total) == mib


@pytest.mark.parametrize(
    ("drafter", "took_gb"), [(None, 0.56 + 0.04), (Drafter(path="/d"), 0.73 + 0.04 + 0.56 + 0.04)]
)
def test_what_the_graphs_of_a_real_engine_took(drafter: Drafter | None, took_gb: float) -> None:
    """SGLang 0.5.23 on two H200s, as its log says it (tests/traces/gpu-cold-jit-tp2, and with an
    EAGLE-3 drafter): graphs for 58 prefills, and for batches of up to 4."""
    settings = spec_of("flags: {cuda-graph-max-bs-decode: 4}").preflight
    engine = replace(ENGINE, tensor_parallel=2, drafter=drafter, preflight=settings)
    found = estimate.of(engine, GIB, 0, LLAMA, 143771, 143771, {})
    assert 0.6 < found.graphs / 1024 / took_gb < 1.1


@pytest.mark.parametrize(
    ("layers", "tokens", "cache_gib"), [(0, 880706, 26.88), (1, 825044, 25.18), (16, 428449, 13.08)]
)
def test_what_a_drafter_leaves_of_the_cache_of_a_real_engine(
    layers: int, tokens: int, cache_gib: float
) -> None:
    """SGLang 0.5.16 on two H200s, without a drafter, with one of EAGLE-3 and with the model as its own
    (STANDALONE); as the engine says it (docs/evidence/gpu-check.json)."""
    model = {"num_hidden_layers": 16, "num_attention_heads": 16, "num_key_value_heads": 8}
    model["hidden_size"] = 2048
    weights = 1456 << 20
    settings = spec_of("flags: {mem-fraction-static: 0.2}").preflight
    engine = replace(ENGINE, tensor_parallel=2, preflight=settings)
    draft = {**model, "num_hidden_layers": layers} if layers else {}
    found = estimate.of(engine, weights, weights * layers // 16, model, 143771, 143771, draft)
    assert found.tokens == pytest.approx(tokens, rel=0.02)
    said = found.to_json()
    assert said["cache_gib"] == pytest.approx(cache_gib, rel=0.02)
    assert said["weights_gib"] == pytest.approx(0.71, rel=0.01)


def test_the_graphs_are_a_part_of_what_is_left() -> None:
    found = judged(ONE, 16, LLAMA)["gpu-memory"]
    assert found.level == "info" and "graphs 1.0, CUDA, NCCL and activations" in found.seen
    full = replace(ONE, preflight=Preflight(mem_fraction=0.995))
    tight = judged(full, 16, LLAMA)["gpu-memory"]
    assert tight.level == "warn" and "leaves too little beside the graphs" in tight.seen


def test_what_the_inventory_says_of_memory() -> None:
    found = spec_of(
        "flags: {mem-fraction-static: 0.94, context-length: 131072, kv-cache-dtype: fp8_e4m3,\n"
        " pp-size: 2, enable-dp-attention: true, dp-size: 4, quantization: fp8}\n"
    ).preflight
    assert (found.mem_fraction, found.context_length) == (0.94, 131072)
    assert (found.pipeline_parallel, found.attention_replicas) == (2, 4)
    assert found.kv_cache_dtype == "fp8_e4m3" and not found.as_stored
    plain = spec_of("flags: {dp-size: 4}\n").preflight
    assert (plain.attention_replicas, plain.mem_fraction, plain.as_stored) == (1, None, True)
