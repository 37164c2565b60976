"""Models and settings that do not go together on SM120 (RTX PRO 6000, RTX 5090). A row each.

What needs no model is told where the inventory is read (roles/inventory/contradictions.py).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sglangctl.diagnosis.finding import WARN, Finding
from sglangctl.preflight.catalog import finding
from sglangctl.preflight.configs import text_model
from sglangctl.state.config import EngineConfig, Preflight
from sglangctl.util.values import text

SM120 = ("12.0", "12.1")


@dataclass(frozen=True)
class Rule:
    """When the model is one of this kind and the settings hold, what was seen and what to do."""

    model: Callable[[Mapping[str, Any]], bool]
    holds: Callable[[Preflight], bool]
    seen: str
    fix: str


def _linear(model: Mapping[str, Any]) -> bool:
    kinds = model.get("layer_types")
    listed = isinstance(kinds, list) and "linear_attention" in kinds
    return listed or bool(model.get("full_attention_interval"))


RULES = (
    Rule(
        _linear,
        lambda settings: settings.prefill_attention == "trtllm_mha",
        "the model has layers of linear attention, for which trtllm_mha is documented for decoding "
        "only",
        "set `flags: {prefill-attention-backend: flashinfer}`",
    ),
    Rule(
        lambda model: bool(model.get("index_topk")),
        lambda settings: settings.decode_graphs == "full",
        "with sparse attention (DSA) the full capture of decode graphs was reported to hang for 36 "
        "minutes on eight RTX PRO 6000",
        "set `flags: {cuda-graph-backend-decode: tc_piecewise, cuda-graph-max-bs-decode: 256}`",
    ),
)


def look(
    engine: EngineConfig, config: Mapping[str, Any], gpus: Sequence[Mapping[str, Any]]
) -> Iterator[Finding]:
    """Nothing on other GPUs."""
    if not any(text(gpu.get("compute_capability")) in SM120 for gpu in gpus):
        return
    model = text_model(dict(config))
    for rule in RULES:
        if rule.model(model) and rule.holds(engine.preflight):
            yield finding("sm120-combination", WARN, rule.seen, rule.fix)
