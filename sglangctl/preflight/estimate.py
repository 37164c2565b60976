"""How much memory an engine will take on each GPU, and how long a request can be. Pure.

SGLang takes mem-fraction-static of what is free for weights and key/value cache, after CUDA and
NCCL have taken theirs; the rest is for activations and graphs. What is set aside for graphs is
SGLang's own guess (0.5.23: memory_hook, kv_cache_configurator, cuda_graph_hook). The weights are as
large as their files, as far as nothing converts them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from sglangctl.preflight import flags
from sglangctl.preflight.configs import text_model
from sglangctl.state.config import EngineConfig
from sglangctl.util.values import text, whole

CONTEXT_MIB = 1024
"""CUDA's context and NCCL's buffers, which are there before the weights (0.6 to 1.3 GiB)."""
CHUNKS = ((20, 2048), (60, 4096), (160, 8192))
"""A GPU with less memory (GiB) than this -> SGLang's chunk of a prefill, in tokens."""
LARGEST_CHUNK = 16384
BATCHES = ((20, 8, 8), (35, 48, 160), (60, 32, 160), (160, 256, 512))
"""A GPU with less memory (GiB) than this -> the largest batch of which SGLang captures a graph, with
less than four ranks and with more."""
LARGEST_BATCH = 512
MIB_OF_BATCH, MIB_OF_PREFILL, MIB_OF_LATENT_PREFILL = 2, 8, 1536
"""For graphs: of each request of the largest batch of decoding; of each size of a prefill; of all of
them with MLA."""
PREFILLS = (
    *(*range(4, 33, 4), *range(48, 257, 16), *range(288, 513, 32), *range(576, 1025, 64)),
    *(*range(1280, 4097, 256), *range(4608, 1 << 16, 512)),
)
"""Tokens of the prefills of which graphs are captured, up to the chunk's size."""
OF_TWO = 2
"""A drafter has graphs of its own, of nearly the same size (two H200s: 0.77 and 0.60 GB), for which
SGLang sets nothing aside."""
DISABLED = "disabled"
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
    """For keys and values, the drafter's too; negative: the weights do not fit."""
    rest: int
    """For CUDA, NCCL and activations."""
    graphs: int = 0
    """Negative rest: graphs and CUDA alone are more than is left for them."""
    tokens: int | None = None
    """That the cache holds; None where a model keeps them in a way that is not known here."""
    draft_cache: int = 0
    """The drafter's part of the cache."""

    @property
    def fits(self) -> bool:
        return self.cache > 0

    def to_json(self) -> dict[str, Any]:
        """As memory_taken.read has what was taken: SGLang tells of the model, not of its drafter."""
        return {
            "weights_gib": round(self.weights / 1024, 3),
            "cache_gib": round((self.cache - self.draft_cache) / 1024, 3),
            "graphs_gib": round(self.graphs / 1024, 3),
            "tokens": self.tokens,
        }


def of(
    engine: EngineConfig,
    weights: int,
    drafter: int,
    config: Mapping[str, Any],
    total: int,
    free: int,
    draft: Mapping[str, Any],
) -> Estimate:
    """
    + weights, drafter: bytes of the tensors in all files
    + config, draft: config.json of the model, and of the drafter if there is one
    + total, free: MiB of the GPU with least
    """
    ranks = engine.tensor_parallel * engine.preflight.pipeline_parallel
    mine = _stored(config, weights) // ranks // MIB
    drafts = drafter // engine.tensor_parallel // MIB
    captured = graphs(engine, config, total)
    fraction = engine.preflight.mem_fraction
    if fraction is None:
        fraction = 1 - reserve(chunk(engine, total), ranks, captured, total) / total if total else 0
    static = int((free - CONTEXT_MIB) * fraction)
    cache = static - mine - drafts
    size, beside = token_bytes(engine, config), token_bytes(engine, draft) or 0
    tokens = int(cache * MIB / (size + beside)) if size and cache > 0 else None
    if engine.drafter is not None:
        captured *= OF_TWO
    rest, theirs = free - static - captured, int((tokens or 0) * beside / MIB)
    return Estimate(total, free, mine, drafts, cache, rest, captured, tokens, theirs)


def reserve(tokens: int, ranks: int, graphs: int, total: int) -> float:
    """MiB that SGLang leaves beside the static part where mem-fraction-static is not given; `tokens` of one
    prefill."""
    reserved = 512 + max(tokens, 2048) * 1.5 + ranks / 8 * 1024 + graphs
    return max(reserved, 10 * 1024) if total > 60 * 1024 else reserved


def chunk(engine: EngineConfig, total: int) -> int:
    """Tokens of one prefill, on GPUs of so many MiB."""
    found = next((size for gib, size in CHUNKS if total < gib * 1024), LARGEST_CHUNK)
    return flags.number(flags.of(engine), "chunked-prefill-size") or found


def graphs(engine: EngineConfig, config: Mapping[str, Any], total: int) -> int:
    """MiB that SGLang sets aside for CUDA graphs, of decoding and of prefills."""
    given = flags.of(engine)

    def captured(phase: str) -> bool:
        off = {given.get("disable-cuda-graph"), given.get(f"disable-{phase}-cuda-graph")}
        return "True" not in off and given.get(f"cuda-graph-backend-{phase}") != DISABLED

    latent = whole(text_model(dict(config)).get("kv_lora_rank"))
    batch = largest_batch(engine, total)
    replicas = engine.preflight.attention_replicas
    found = 0.0
    if captured("decode"):
        found += batch * MIB_OF_BATCH
    if replicas > 1:
        found += batch * replicas * (4.5 if batch > 300 else 3)
    if captured("prefill"):
        sizes = sum(1 for size in PREFILLS if size <= chunk(engine, total))
        found += MIB_OF_LATENT_PREFILL if latent else sizes * MIB_OF_PREFILL
    return int(found)


def largest_batch(engine: EngineConfig, total: int) -> int:
    """Requests of the largest batch of decoding of which a graph is captured."""
    given = flags.of(engine)
    named = flags.number(given, "cuda-graph-max-bs-decode")
    if named is not None:
        return named
    sizes = next((rest for gib, *rest in BATCHES if total < gib * 1024), [LARGEST_BATCH] * 2)
    batch = sizes[0 if engine.tensor_parallel < 4 else 1]
    return min(batch, flags.number(given, "max-running-requests") or batch)


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
