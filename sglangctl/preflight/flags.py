"""The engine's flags that the checks look at: its configuration on the host has no others."""

from __future__ import annotations

from collections.abc import Mapping

from sglangctl.state.config import EngineConfig
from sglangctl.util.values import digits

NAMES = (
    *("attention-backend", "chunked-prefill-size", "cuda-graph-backend-decode"),
    *("cuda-graph-backend-prefill", "cuda-graph-max-bs-decode", "decode-attention-backend"),
    *("disable-cuda-graph", "disable-decode-cuda-graph", "disable-prefill-cuda-graph"),
    *("dsa-decode-backend", "dsa-prefill-backend", "kv-cache-dtype", "linear-attn-backend"),
    *("linear-attn-decode-backend", "linear-attn-verify-backend", "mamba-ssm-dtype"),
    *("max-running-requests", "moe-runner-backend", "prefill-attention-backend", "quantization"),
)


def of(engine: EngineConfig) -> Mapping[str, str]:
    """Name -> value as text (`True`); what is left to SGLang is not there."""
    found = dict(one.partition("=")[::2] for one in engine.preflight.flags)
    return {name: value for name, value in found.items() if value != "auto"}


def number(flags: Mapping[str, str], name: str) -> int | None:
    """A whole number above 0; None without one."""
    return digits(flags.get(name, "")) or None
