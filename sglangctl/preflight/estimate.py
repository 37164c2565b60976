"""How much memory an engine will take on each GPU, and how long a request can be. Pure.

SGLang takes mem-fraction-static of what is free for weights and key/value cache, after CUDA and
NCCL have taken theirs; the rest is for activations and graphs (SGLang 0.5.23: memory_hook,
kv_cache_configurator). The weights are as large as their files, as far as nothing converts them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from sglangctl.preflight.configs import text_model
from sglangctl.state.config import EngineConfig
from sglangctl.util.values import text, whole

CONTEXT_MIB = 1024
"""CUDA's context and NCCL's buffers, which are there before the weights (0.6 to 1.3 GiB)."""
CHUNKS = ((20, 2048), (60, 4096), (160, 8192))
"""A GPU with less memory (GiB) than this -> SGLang's chunk of a prefill, in tokens."""
LARGEST_CHUNK = 16384
MIB = 2**20
WIDTHS = {"fp8_e4m3": 1.0, "fp8_e5m2": 1.0, "fp4_e2m1": 0.5625, "bf16": 2.0, "bfloat16": 2.0}
"""kv-cache-dtype -> bytes of a number; fp4 has a scale of a byte for sixteen of them."""
OTHERWISE = (
    *("attn_type_list", "compress_ratios", "full_attention_interval", "hybrid_override_pattern"),
    *("index_topk", "layers_block_type", "linear_attn_config", "mamba_d_state"),
)
"""Of a config.json: not every layer keeps all keys and values, so they are not counted here."""


@dataclass(frozen=True)
class Estimate:
    """Of one GPU, in MiB."""

    total: int
    free: int
    """Once what ends with the switch has ended."""
    weights: int
    drafter: int
    cache: int
    """For keys and values; negative: the weights do not fit."""
    rest: int
    """For activations, graphs, CUDA and NCCL."""
    tokens: int | None = None
    """That the cache holds; None where a model keeps them in a way that is not known here."""

    @property
    def fits(self) -> bool:
        return self.cache > 0

    def to_json(self) -> dict[str, Any]:
        """As memory_taken.read has what was taken; graphs are not estimated by themselves."""
        return {
            "weights_gib": round((self.weights + self.drafter) / 1024, 3),
            "cache_gib": round(self.cache / 1024, 3),
            "graphs_gib": None,
            "tokens": self.tokens,
        }


def of(
    engine: EngineConfig,
    weights: int,
    drafter: int,
    config: Mapping[str, Any],
    total: int,
    free: int,
) -> Estimate:
    """
    + weights, drafter: bytes of the tensors in all files
    + config: the model's config.json
    + total, free: MiB of the GPU with least
    """
    ranks = engine.tensor_parallel * engine.preflight.pipeline_parallel
    mine = _stored(config, weights) // ranks // MIB
    draft = drafter // engine.tensor_parallel // MIB
    fraction = engine.preflight.mem_fraction
    if fraction is None:
        fraction = 1 - reserve(total, ranks) / total if total else 0
    static = int((free - CONTEXT_MIB) * fraction)
    cache = static - mine - draft
    size = token_bytes(engine, config)
    tokens = int(cache * MIB / size) if size and cache > 0 else None
    return Estimate(total, free, mine, draft, cache, free - static, tokens)


def reserve(total: int, ranks: int) -> float:
    """MiB that SGLang leaves beside the static part where mem-fraction-static is not given."""
    chunk = next((size for gib, size in CHUNKS if total < gib * 1024), LARGEST_CHUNK)
    reserved = 512 + chunk * 1.5 + ranks / 8 * 1024 + 512
    return max(reserved, 10 * 1024) if total > 60 * 1024 else reserved


def token_bytes(engine: EngineConfig, config: Mapping[str, Any]) -> float | None:
    """Of one token's keys and values on one GPU; None: not known."""
    model = text_model(dict(config))
    layers = whole(model.get("num_hidden_layers"))
    width = WIDTHS.get(engine.preflight.kv_cache_dtype, 2.0)
    if not layers or _keeps_otherwise(model):
        return None
    layers = -(-layers // engine.preflight.pipeline_parallel)
    latent, rope = whole(model.get("kv_lora_rank")), whole(model.get("qk_rope_head_dim"))
    if latent and rope:  # one compressed vector, which every rank has
        return layers * (latent + rope) * width
    heads = whole(model.get("num_attention_heads"))
    kept = whole(model.get("num_key_value_heads")) or heads
    size = whole(model.get("head_dim"))
    if size is None and heads:
        size = (whole(model.get("hidden_size")) or 0) // heads
    if not kept or not size:
        return None
    return 2 * layers * max(1, kept // _attention_ranks(engine)) * size * width


def context(engine: EngineConfig, config: Mapping[str, Any]) -> int | None:
    """Tokens of the longest request: as the inventory has it, else as the model has it."""
    model = text_model(dict(config))
    return engine.preflight.context_length or whole(model.get("max_position_embeddings"))


def heads_in_the_way(engine: EngineConfig, config: Mapping[str, Any]) -> tuple[int, int] | None:
    """(heads, ranks) where the ranks cannot share the model's attention heads evenly."""
    heads = whole(text_model(dict(config)).get("num_attention_heads"))
    ranks = _attention_ranks(engine)
    return (heads, ranks) if heads and heads % ranks else None


def _keeps_otherwise(model: Mapping[str, Any]) -> bool:
    kinds, window = model.get("layer_types"), model.get("sliding_window")
    if isinstance(kinds, list) and any(kind != "full_attention" for kind in kinds):
        return True
    if kinds is None and window and model.get("use_sliding_window", True):
        return True
    return any(model.get(name) for name in OTHERWISE)


def _attention_ranks(engine: EngineConfig) -> int:
    """With DP attention each replica has a part of the ranks."""
    return max(1, engine.tensor_parallel // engine.preflight.attention_replicas)


def _stored(config: Mapping[str, Any], weights: int) -> int:
    """float32 on the disk becomes half of it on the GPU (SGLang's dtype auto)."""
    model = text_model(dict(config))
    kind = text(model.get("dtype")) or text(model.get("torch_dtype"))
    return weights // 2 if kind == "float32" else weights
