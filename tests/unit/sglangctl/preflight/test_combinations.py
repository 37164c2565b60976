"""Models and settings that do not go together on SM120."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from sglangctl.preflight import combinations
from tests.support.engine_config import ENGINE
from tests.support.inventory_case import engine as spec_of

HYBRID = {"text_config": {"layer_types": ["linear_attention", "full_attention"]}}
DSA = {"index_topk": 2048}


@pytest.mark.parametrize(
    ("flags", "config", "capability", "said"),
    [
        ("attention-backend: trtllm_mha", HYBRID, "12.0", "linear attention"),
        ("attention-backend: trtllm_mha", {"full_attention_interval": 4}, "12.1", "linear"),
        ("attention-backend: trtllm_mha", HYBRID, "10.0", None),
        ("attention-backend: trtllm_mha", {"layer_types": ["full_attention"]}, "12.0", None),
        ("decode-attention-backend: trtllm_mha", HYBRID, "12.0", None),
        (
            "attention-backend: trtllm_mha, prefill-attention-backend: flashinfer",
            HYBRID,
            "12.0",
            None,
        ),
        ("cuda-graph-backend-decode: full", DSA, "12.0", "sparse attention"),
        ("cuda-graph-backend-decode: tc_piecewise", DSA, "12.0", None),
        ("cuda-graph-backend-decode: full", {}, "12.0", None),
        ("cuda-graph-backend-decode: full", DSA, None, None),
    ],
)
def test_a_combination(
    flags: str, config: dict[str, Any], capability: str | None, said: str | None
) -> None:
    settings = spec_of(f"flags: {{{flags}}}\n").preflight
    engine = replace(ENGINE, preflight=settings)
    found = list(combinations.look(engine, config, [{"compute_capability": capability}]))
    assert [one.level for one in found] == (["warn"] if said else [])
    assert all((said or "") in one.seen for one in found)
