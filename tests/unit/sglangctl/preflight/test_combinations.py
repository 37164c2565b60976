"""Models, settings and GPUs that do not go together."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from roles.inventory.flag_names import FLAGS as OF_SGLANG
from sglangctl.preflight import combinations
from sglangctl.preflight.combinations import RULES
from sglangctl.preflight.flags import NAMES
from sglangctl.state.config import EngineConfig
from tests.support.engine_config import ENGINE
from tests.support.inventory_case import engine as spec_of

HYBRID = {"text_config": {"layer_types": ["linear_attention", "full_attention"]}}
MLA = {"kv_lora_rank": 512}
GLM = {"architectures": ["GlmMoeDsaForCausalLM"], "index_topk": 2048}
DEEPSEEK = {"architectures": ["DeepseekV32ForCausalLM"], "index_topk": 2048}
FP8_CACHE = {"quantization_config": {"quant_algo": "NVFP4", "kv_cache_quant_algo": "FP8"}}
FP8_SCHEME = {"quantization_config": {"kv_cache_scheme": {"num_bits": 8, "type": "float"}}}
DSV4 = {
    "architectures": ["DeepseekV4ForCausalLM"],
    "quantization_config": {"quant_algo": "MIXED_PRECISION", "moe_quant_algo": "NVFP4"},
}
LLAMA4 = {
    "architectures": ["Llama4ForConditionalGeneration"],
    "quantization_config": {"quant_method": "modelopt", "quant_algo": "NVFP4"},
}
PACKED = {**LLAMA4, "quantization_config": {"format": "nvfp4-pack-quantized"}}
MHA = "attention-backend: trtllm_mha"
FLASH = "prefill-attention-backend: flashinfer"
GDN = "linear-attn-decode-backend: flashinfer"
DSA = "dsa-prefill-backend: tilelang, dsa-decode-backend: tilelang"

CASES: list[tuple[int, str, dict[str, Any], str, bool]] = [
    # Rule, flags, config.json, compute capability, whether it holds.
    (0, "attention-backend: fa3", {}, "12.0", True),
    (0, "decode-attention-backend: fa3", {}, "10.0", True),
    (0, "attention-backend: fa3", {}, "9.0", False),
    (0, "attention-backend: fa3", {}, "8.6", False),
    (0, "attention-backend: fa3", MLA, "8.0", True),
    (0, "attention-backend: fa3, prefill-attention-backend: triton", {}, "12.0", True),
    (0, "attention-backend: fa3, kv-cache-dtype: fp8_e5m2", {}, "12.0", False),  # SGLang: triton
    (1, MHA, {}, "8.9", True),
    (1, MHA, {}, "11.0", True),
    (1, MHA, {}, "12.1", False),
    (2, "attention-backend: trtllm_mla", MLA, "9.0", True),
    (2, "attention-backend: trtllm_mla", MLA, "12.0", False),
    (3, "decode-attention-backend: cutedsl_mla", MLA, "12.0", True),
    (3, "decode-attention-backend: cutedsl_mla", MLA, "10.3", False),
    (4, "kv-cache-dtype: mxfp8", {}, "9.0", True),
    (4, "kv-cache-dtype: nvfp4", {}, "9.0", True),
    (4, "kv-cache-dtype: nvfp4", {}, "12.0", False),
    (5, GDN, {}, "12.0", True),
    (5, "linear-attn-backend: flashinfer", {}, "10.0", True),
    (5, "linear-attn-verify-backend: flashinfer", {}, "10.0", True),
    (5, f"{GDN}, mamba-ssm-dtype: bfloat16", {}, "12.0", False),
    (5, GDN, {}, "9.0", False),
    (6, f"{MHA}, kv-cache-dtype: fp8_e4m3", {}, "12.0", True),
    (6, f"{MHA}, kv-cache-dtype: fp8_e4m3", {}, "10.0", False),
    (6, f"{MHA}, {FLASH}, kv-cache-dtype: fp8_e4m3", {}, "12.0", False),
    (7, MHA, FP8_CACHE, "12.0", True),
    (7, f"{MHA}, kv-cache-dtype: auto", FP8_SCHEME, "12.1", True),
    (7, f"{MHA}, kv-cache-dtype: bf16", FP8_CACHE, "12.0", False),
    (7, MHA, {}, "12.0", False),
    (8, MHA, HYBRID, "12.0", True),
    (8, MHA, {"full_attention_interval": 4}, "12.1", True),
    (8, MHA, HYBRID, "10.0", False),
    (8, MHA, {"layer_types": ["full_attention"]}, "12.0", False),
    (8, "decode-attention-backend: trtllm_mha", HYBRID, "12.0", False),
    (8, f"{MHA}, {FLASH}", HYBRID, "12.0", False),
    (9, "attention-backend: fa4", HYBRID, "12.0", True),
    (9, "attention-backend: triton", HYBRID, "12.0", False),
    (9, "", HYBRID, "12.0", False),
    (10, "dsa-decode-backend: trtllm", DEEPSEEK, "12.0", True),
    (10, "dsa-decode-backend: trtllm", DEEPSEEK, "10.0", False),
    (11, "", DEEPSEEK, "12.0", True),
    (11, "dsa-decode-backend: tilelang", DEEPSEEK, "12.0", True),
    (11, DSA, DEEPSEEK, "12.0", False),
    (11, "", GLM, "12.0", False),
    (11, "kv-cache-dtype: bf16", GLM, "12.0", True),
    (11, "", DEEPSEEK, "9.0", False),
    (12, "cuda-graph-backend-decode: full", GLM, "12.0", True),
    (12, "cuda-graph-backend-decode: tc_piecewise", GLM, "12.0", False),
    (12, "cuda-graph-backend-decode: full", {}, "12.0", False),
    (13, "moe-runner-backend: flashinfer_trtllm", {}, "12.0", True),
    (13, "moe-runner-backend: flashinfer_trtllm", {}, "10.0", False),
    (13, "moe-runner-backend: flashinfer_cutlass", {}, "12.0", False),
    (14, "", DSV4, "12.0", True),
    (14, "moe-runner-backend: auto", DSV4, "12.0", True),
    (14, "moe-runner-backend: flashinfer_cutlass", DSV4, "12.0", False),
    (14, "", DSV4, "10.0", False),
    (15, "", LLAMA4, "12.0", True),
    (15, "", PACKED, "12.1", True),
    (15, "quantization: modelopt_fp4", {"architectures": ["Llama4ForCausalLM"]}, "12.0", True),
    (15, "", {"architectures": ["Llama4ForCausalLM"]}, "12.0", False),
    (15, "moe-runner-backend: marlin", LLAMA4, "12.0", False),
    (16, "moe-runner-backend: marlin", LLAMA4, "12.0", True),
    (16, "moe-runner-backend: marlin", DSV4, "12.0", False),
]


def engine_with(flags: str) -> EngineConfig:
    """As the inventory makes it: only what rules look at gets to the host."""
    settings = spec_of(f"flags: {{{flags}}}\n").preflight
    return replace(ENGINE, version="0.5.23", preflight=settings)


@pytest.mark.parametrize(("number", "flags", "config", "capability", "holds"), CASES)
def test_a_combination(
    number: int, flags: str, config: dict[str, Any], capability: str, holds: bool
) -> None:
    rule = RULES[number]
    found = combinations.look(engine_with(flags), config, [{"compute_capability": capability}])
    told = [one for one in found if rule.seen in one.seen]
    assert bool(told) is holds
    for one in told:
        assert (one.id, one.source, one.fix) == (rule.id, rule.source, rule.fix)
        assert one.level == ("fail" if rule.certain else "warn")
        assert f"compute capability {capability}" in one.seen


def test_every_rule_has_a_case_that_it_holds_for_and_one_for_which_it_does_not() -> None:
    for number, rule in enumerate(RULES):
        assert {holds for at, *_, holds in CASES if at == number} == {True, False}, rule.seen
        assert rule.source and rule.fix


def test_flags_are_sglang_s() -> None:
    assert set(NAMES) <= set(OF_SGLANG)


def test_another_release_may_have_what_this_one_lacks() -> None:
    other = replace(engine_with("attention-backend: fa3"), version="0.6.0")
    (found,) = combinations.look(other, {}, [{"compute_capability": "12.0"}])
    assert found.level == "warn"


def test_one_line_for_eight_gpus_and_none_for_unknown_ones() -> None:
    engine = engine_with("attention-backend: fa3")
    eight = [{"compute_capability": "12.0"}] * 8
    assert len(list(combinations.look(engine, {}, eight))) == 1
    unknown: list[dict[str, Any]] = [{"compute_capability": None}, {}, {"compute_capability": "x"}]
    assert not list(combinations.look(engine, {}, unknown))


@pytest.mark.parametrize(
    "odd",
    [
        {"architectures": 1, "layer_types": {}, "quantization_config": [1]},
        {"architectures": [None], "quantization_config": {"quant_algo": [], "kv_cache_scheme": 1}},
        {"text_config": [], "index_topk": "x", "kv_lora_rank": {}},
    ],
)
def test_nothing_of_a_config_is_a_crash(odd: dict[str, Any]) -> None:
    list(combinations.look(engine_with(MHA), odd, [{"compute_capability": "12.0"}]))
