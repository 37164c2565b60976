"""Settings that are right alone and wrong together: known to crash, or reported wrong or slow.

One row each, with its source. What depends on the host's GPUs is told for certain only where
`kernel.arch` says what they are; the host tells it by its GPUs and the model
(sglangctl/preflight/combinations.py).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from roles.inventory.errors import Path
from roles.inventory.schema import Report


class Settings:
    """An engine's settings by short names, as SGLang's parser would have them."""

    def __init__(self, engine: Mapping[str, Any]) -> None:
        self.flags: Mapping[str, Any] = engine["flags"]
        self.drafter: Mapping[str, Any] = engine.get("drafter") or {}
        self.environment: Mapping[str, Any] = engine["environment"]
        self.api_key = bool(engine.get("api_key"))
        arch = re.sub(r"[^0-9]", "", str(engine["kernel"].get("arch") or ""))
        self.sm120: bool | None = arch in ("120", "121") if arch else None
        """None: not known here."""

    def number(self, *names: str) -> float:
        """A flag's number under any of its names; 0 without one."""
        for name in names:
            value = self.flags.get(name)
            if isinstance(value, (int, float)) and not isinstance(value, bool):
                return float(value)
            if isinstance(value, str) and re.fullmatch(r"[0-9]{1,15}", value):
                return float(value)
        return 0

    def attention(self, phase: str) -> Any:
        """The attention backend of prefill or decode."""
        return self.flags.get(f"{phase}-attention-backend") or self.flags.get("attention-backend")


@dataclass(frozen=True)
class Rule:
    """One row: where it is told, when, what was found, what to do."""

    flag: str
    holds: Callable[[Settings], bool]
    found: str
    allowed: str
    source: str
    sm120: bool = False
    """Only on SM120 (RTX PRO 6000, RTX 5090): a warning where the GPUs are not known."""
    certain: bool = True
    """False: reported by some, so a warning."""


RULES = (
    Rule(
        "lora-paths",
        lambda s: isinstance(s.flags.get("lora-paths"), dict),
        "a mapping",
        "a list: [NAME=PATH, ...], or of mappings with lora_name and lora_path",
        "SGLang 0.5.23: LoRAPathAction takes words",
    ),
    Rule(
        "kv-cache-dtype",
        lambda s: (
            s.attention("prefill") == "trtllm_mha" and s.flags.get("kv-cache-dtype") == "fp8_e4m3"
        ),
        "fp8_e4m3 with the attention backend trtllm_mha on an SM120 GPU",
        "another kv-cache-dtype, or prefill-attention-backend: flashinfer",
        "SGLang 0.5.23: attention_hook raises ValueError",
        sm120=True,
    ),
    Rule(
        "attention-backend",
        lambda s: "fa3" in (s.attention("prefill"), s.attention("decode")),
        "fa3 on an SM120 GPU, for which it has no kernels",
        "flashinfer or triton",
        "sgl_kernel/flash_attn.py: capability 8 or 9",
        sm120=True,
    ),
    Rule(
        "dsa-prefill-backend",
        lambda s: (
            "trtllm" in (s.flags.get("dsa-prefill-backend"), s.flags.get("dsa-decode-backend"))
        ),
        "a DSA backend trtllm on an SM120 GPU, for which it has no kernels",
        "leave it out: SGLang takes flashinfer_sparse_mla there",
        "sglang issue 29562",
        sm120=True,
    ),
    Rule(
        "attention-backend",
        lambda s: (
            s.drafter.get("topk", 1) > 1
            and "trtllm_mha" in (s.attention("prefill"), s.attention("decode"))
        ),
        "trtllm_mha with a drafter of topk above 1",
        "topk: 1, or another backend",
        "SGLang 0.5.23: speculative_hook raises ValueError",
    ),
    Rule(
        "page-size",
        lambda s: (
            s.drafter.get("topk", 1) > 1
            and s.number("page-size") > 1
            and s.flags.get("attention-backend") not in (None, "flashinfer", "fa3", "triton")
        ),
        "a page size above 1 with a drafter of topk above 1 under this attention backend",
        "page-size: 1, topk: 1, or the backend flashinfer, fa3 or triton",
        "SGLang 0.5.23: speculative_hook raises ValueError",
    ),
    Rule(
        "pp-size",
        lambda s: bool(s.drafter) and s.number("pp-size", "pipeline-parallel-size") > 1,
        "pipeline parallelism with a drafter",
        "one of them: together they are for prefill nodes only",
        "SGLang 0.5.23: validation_hook asserts it",
    ),
    Rule(
        "attn-dp-size",
        lambda s: s.number("attn-dp-size") > 1 and s.number("dp-size", "data-parallel-size") > 1,
        "attn-dp-size together with data-parallel-size",
        "attn-dp-size alone",
        "SGLang 0.5.23: parallel_hook raises ValueError",
    ),
    Rule(
        "weight-cache-mode",
        lambda s: bool(s.drafter) and s.flags.get("weight-cache-mode") in ("client", "daemon"),
        "a weight cache with a drafter",
        "one of them",
        "SGLang 0.5.23: the weight cache refuses speculative decoding",
    ),
    Rule(
        "disable-cuda-graph-padding",
        lambda s: (
            s.flags.get("disable-cuda-graph-padding") is True
            and s.flags.get("enable-torch-compile") is True
        ),
        "it together with enable-torch-compile: every batch size would be compiled",
        "one of them",
        "SGLang 0.5.23: validation_hook asserts it",
    ),
    Rule(
        "grpc-port",
        lambda s: "grpc-port" in s.flags and (s.api_key or "admin-api-key" in s.flags),
        "a gRPC port with an api key, which it does not ask for",
        "one of them",
        "SGLang 0.5.23: serving_hook raises ValueError",
    ),
    Rule(
        "chunked-prefill-size",
        lambda s: (
            s.number("page-size") > 1
            and s.number("chunked-prefill-size") > 0
            and s.number("chunked-prefill-size") % s.number("page-size") != 0
        ),
        "a size that page-size does not divide",
        "a multiple of page-size",
        "SGLang 0.5.23: validation_hook asserts it",
    ),
    Rule(
        "max-total-tokens",
        lambda s: 0 < s.number("max-total-tokens") < SMALLEST_CACHE,
        "a key/value cache in which no request of ordinary length fits",
        "at least 4096 tokens, or leave it out: SGLang measures what fits",
        "SGLang answers such requests with 400, or stops at its own warm-up",
        certain=False,
    ),
    Rule(
        "moe-runner-backend",
        lambda s: s.flags.get("moe-runner-backend") == "flashinfer_trtllm",
        "flashinfer_trtllm, reported to corrupt output",
        "leave it out, or flashinfer_cutlass on SM120",
        "sglang issue 26324",
        certain=False,
    ),
)
SMALLEST_CACHE = 4096
"""Tokens: a prompt with an answer. Our own proof needs some hundred."""


def check(engine: Mapping[str, Any], report: Report, warn: Report) -> None:
    """Report each rule that holds, at the flag that it names."""
    settings = Settings(engine)
    for rule in RULES:
        if (rule.sm120 and settings.sm120 is False) or not rule.holds(settings):
            continue
        certain = rule.certain and (settings.sm120 is True or not rule.sm120)
        where: Path = ("flags", rule.flag)
        (report if certain else warn)(where, rule.found, rule.allowed, None)
