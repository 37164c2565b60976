"""Settings, models and GPUs that do not go together: known to crash, or reported wrong. A row each,
with its source.

What needs neither model nor GPU is told where the inventory is read
(roles/inventory/contradictions.py).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

from sglangctl.diagnosis.finding import FAIL, WARN, Finding
from sglangctl.preflight import flags
from sglangctl.preflight.catalog import finding
from sglangctl.preflight.configs import text_model
from sglangctl.preflight.versions import parts
from sglangctl.state.config import EngineConfig
from sglangctl.util.values import mapping, text

READ = "0.5.23"
"""The SGLang in whose source the rules were read: in another one they are no more than likely."""
HYBRID = (None, "flashinfer", "triton", "trtllm_mha")
"""Attention backends that a model with gated delta rule may have on SM120."""


class Case:
    """One engine: its flags, its model's config.json, one kind of GPU."""

    def __init__(
        self, engine: EngineConfig, config: Mapping[str, Any], capability: tuple[int, ...]
    ) -> None:
        self.flags = flags.of(engine)
        self.model = text_model(dict(config))
        self.major = capability[0]
        named = config.get("architectures")
        self.architecture = str(named[0]) if isinstance(named, list) and named else ""

    def flag(self, name: str) -> str | None:
        """Its value; None where SGLang chooses."""
        return self.flags.get(name)

    @property
    def sm120(self) -> bool:
        return self.major == 12

    @property
    def prefill(self) -> str | None:
        """The attention backend of prefills; and of decoding."""
        return self.flag("prefill-attention-backend") or self.flag("attention-backend")

    @property
    def decode(self) -> str | None:
        return self.flag("decode-attention-backend") or self.flag("attention-backend")

    @property
    def attention(self) -> tuple[str | None, str | None]:
        return self.prefill, self.decode

    @property
    def moe(self) -> str | None:
        return self.flag("moe-runner-backend")

    @property
    def cache(self) -> str | None:
        return self.flag("kv-cache-dtype")

    @property
    def latent(self) -> bool:
        """MLA: keys and values are kept as one compressed vector."""
        return bool(self.model.get("kv_lora_rank"))

    @property
    def gated_delta(self) -> bool:
        """Some layers are linear attention."""
        kinds = self.model.get("layer_types")
        listed = isinstance(kinds, list) and "linear_attention" in kinds
        return listed or bool(self.model.get("full_attention_interval"))

    @property
    def sparse(self) -> bool:
        """DeepSeek's sparse attention (DSA)."""
        return bool(self.model.get("index_topk"))

    def linear(self, phase: str) -> str | None:
        """The backend of linear attention in decode or verify, as SGLang derives it."""
        base = self.flag("linear-attn-backend")
        decode = self.flag("linear-attn-decode-backend") or base
        if phase == "decode":
            return decode
        return self.flag("linear-attn-verify-backend") or (
            decode if decode == "flashinfer" else None
        )

    @cached_property
    def quantisation(self) -> Mapping[str, Any]:
        return mapping(self.model.get("quantization_config"))

    @property
    def nvfp4(self) -> bool:
        """Of weights, or of the experts alone."""
        said = self.quantisation
        names = [said.get(key) for key in ("quant_algo", "moe_quant_algo", "format")]
        wanted = self.flag("quantization") in ("modelopt_fp4", "nvfp4_online")
        return wanted or any("nvfp4" in str(name).lower() for name in names)

    @property
    def stores_fp8_cache(self) -> bool:
        """The model's own files say that keys and values are FP8."""
        scheme = mapping(self.quantisation.get("kv_cache_scheme"))
        return self.quantisation.get("kv_cache_quant_algo") == "FP8" or scheme.get("num_bits") == 8


@dataclass(frozen=True)
class Rule:
    """When it holds, what was seen, what to do."""

    holds: Callable[[Case], bool]
    seen: str
    fix: str
    source: str
    certain: bool = False
    """SGLang refuses it, or has no kernel for it; else it was reported by some."""
    id: str = "sm120-combination"


KERNELS = "gpu-kernels"
RULES = (
    Rule(
        lambda case: (
            "fa3" in case.attention
            and case.cache != "fp8_e5m2"
            and not (case.major == 9 or (case.major == 8 and not case.latent))
        ),
        "the attention backend fa3 has no kernels for them",
        "leave attention-backend out, or set `flags: {attention-backend: flashinfer}`",
        "SGLang 0.5.23: attention_registry asserts it",
        certain=True,
        id=KERNELS,
    ),
    Rule(
        lambda case: "trtllm_mha" in case.attention and case.major not in (9, 10, 12),
        "the attention backend trtllm_mha has no kernels for them",
        "leave attention-backend out, or set `flags: {attention-backend: flashinfer}`",
        "SGLang 0.5.23: attention_hook raises ValueError",
        certain=True,
        id=KERNELS,
    ),
    Rule(
        lambda case: "trtllm_mla" in case.attention and case.major < 10,
        "the attention backend trtllm_mla has no kernels for them",
        "leave attention-backend out",
        "SGLang 0.5.23: overrides raises ValueError",
        certain=True,
        id=KERNELS,
    ),
    Rule(
        lambda case: "cutedsl_mla" in case.attention and case.major != 10,
        "the attention backend cutedsl_mla has no kernels for them",
        "leave attention-backend out",
        "SGLang 0.5.23: overrides raises ValueError",
        certain=True,
        id=KERNELS,
    ),
    Rule(
        lambda case: (
            (case.cache == "mxfp8" and case.major < 10)
            or (case.cache == "nvfp4" and case.major not in (10, 12))
        ),
        "the key/value cache's type has no kernels for them",
        "set `flags: {kv-cache-dtype: fp8_e4m3}`, or leave it out",
        "SGLang 0.5.23: kv_cache_hook refuses it",
        certain=True,
        id=KERNELS,
    ),
    Rule(
        lambda case: (
            case.major >= 10
            and "flashinfer" in (case.linear("decode"), case.linear("verify"))
            and case.flag("mamba-ssm-dtype") != "bfloat16"
        ),
        "linear attention by flashinfer needs a state of bfloat16 on them",
        "set `flags: {mamba-ssm-dtype: bfloat16}`",
        "SGLang 0.5.23: attention_hook raises ValueError",
        certain=True,
        id=KERNELS,
    ),
    Rule(
        lambda case: case.sm120 and case.prefill == "trtllm_mha" and case.cache == "fp8_e4m3",
        "the attention backend trtllm_mha does no prefill with a key/value cache of fp8_e4m3",
        "set `flags: {prefill-attention-backend: flashinfer}`",
        "SGLang 0.5.23: attention_hook raises ValueError",
        certain=True,
    ),
    Rule(
        lambda case: (
            case.sm120
            and case.prefill == "trtllm_mha"
            and case.cache is None
            and case.stores_fp8_cache
        ),
        "the model asks for a key/value cache of fp8_e4m3, with which trtllm_mha does no prefill: "
        "reported to end the capture of graphs",
        "set `flags: {prefill-attention-backend: flashinfer}`, or kv-cache-dtype: bf16",
        "sglang pull request 39807",
    ),
    Rule(
        lambda case: case.sm120 and case.gated_delta and case.prefill == "trtllm_mha",
        "the model has layers of linear attention, for which trtllm_mha is documented for decoding "
        "only",
        "set `flags: {prefill-attention-backend: flashinfer}`",
        "SGLang's docs, attention backends",
    ),
    Rule(
        lambda case: case.sm120 and case.gated_delta and not set(case.attention) <= set(HYBRID),
        "the model has layers of linear attention, beside which SGLang takes flashinfer, triton or "
        "trtllm_mha only",
        "leave attention-backend out, or set `flags: {attention-backend: flashinfer}`",
        "SGLang 0.5.23: attention_registry asserts it",
    ),
    Rule(
        lambda case: (
            case.sm120
            and "trtllm" in (case.flag("dsa-prefill-backend"), case.flag("dsa-decode-backend"))
        ),
        "the DSA backend trtllm has no kernels for them",
        "leave it out: SGLang takes flashinfer_sparse_mla there for GLM with fp8_e4m3",
        "sglang issue 29562",
        certain=True,
    ),
    Rule(
        lambda case: (
            case.sm120
            and case.sparse
            and None in (case.flag("dsa-prefill-backend"), case.flag("dsa-decode-backend"))
            and not (
                case.architecture == "GlmMoeDsaForCausalLM" and case.cache in (None, "fp8_e4m3")
            )
        ),
        "for this model and key/value cache SGLang chooses a DSA backend without kernels for them "
        "(it chooses flashinfer_sparse_mla for GLM with fp8_e4m3 only)",
        "name both: `flags: {dsa-prefill-backend: ..., dsa-decode-backend: ...}`",
        "SGLang 0.5.23: overrides, _dsa_split_backend_resolution; sglang issue 29562",
    ),
    Rule(
        lambda case: (
            case.sm120 and case.sparse and case.flag("cuda-graph-backend-decode") == "full"
        ),
        "with sparse attention (DSA) the full capture of decode graphs was reported to hang for 36 "
        "minutes on eight RTX PRO 6000",
        "set `flags: {cuda-graph-backend-decode: tc_piecewise, cuda-graph-max-bs-decode: 256}`",
        "sglang pull request 29580",
    ),
    Rule(
        lambda case: (
            case.sm120
            and case.moe in ("flashinfer_trtllm", "flashinfer_trtllm_routed", "flashinfer_megamoe")
        ),
        "the MoE runner's kernels are for SM100 only",
        "leave moe-runner-backend out, or set `flags: {moe-runner-backend: flashinfer_cutlass}`",
        "SGLang 0.5.23: overrides says it; moe_hook",
        certain=True,
    ),
    Rule(
        lambda case: (
            case.sm120
            and case.moe is None
            and case.architecture.startswith("DeepseekV4")
            and case.nvfp4
            and case.quantisation.get("quant_algo") == "MIXED_PRECISION"
        ),
        "for DeepSeek V4 with NVFP4 experts SGLang chooses flashinfer_trtllm_routed on any GPU, and "
        "its kernels are for SM100 only",
        "set `flags: {moe-runner-backend: flashinfer_cutlass}`",
        "SGLang 0.5.23: model_overrides/deepseek_v4",
    ),
    Rule(
        lambda case: (
            case.sm120
            and case.architecture.startswith("Llama4")
            and case.nvfp4
            and case.moe in (None, "flashinfer_cutlass")
        ),
        "the experts of Llama 4 in NVFP4 have no runner: SGLang ends at its first batch",
        "take another quantisation of the model (moe-runner-backend: marlin gives wrong numbers)",
        "SGLang 0.5.23: modelopt_quant asserts it; sglang issue 34192",
        certain=True,
    ),
    Rule(
        lambda case: case.architecture.startswith("Llama4") and case.nvfp4 and case.moe == "marlin",
        "with marlin the experts of Llama 4 in NVFP4 were reported to give wrong numbers",
        "take another quantisation of the model",
        "sglang issue 34192",
    ),
)


def look(
    engine: EngineConfig, config: Mapping[str, Any], gpus: Sequence[Mapping[str, Any]]
) -> Iterator[Finding]:
    """One line a rule, of the first GPU for which it holds. + config: of the model; may be empty."""
    named = {text(gpu.get("compute_capability")) or "" for gpu in gpus}
    known = {one: parts(one) for one in sorted(named) if parts(one)}
    for rule in RULES:
        for capability, numbers in known.items():
            if rule.holds(Case(engine, config, numbers)):
                level = FAIL if rule.certain and engine.version == READ else WARN
                seen = f"GPUs of compute capability {capability}: {rule.seen}"
                yield replace(finding(rule.id, level, seen, rule.fix), source=rule.source)
                break
