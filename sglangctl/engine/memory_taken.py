"""What an engine says that it took of each GPU's memory."""

from __future__ import annotations

from typing import Any

from sglangctl.engine.http import Answer
from sglangctl.util.values import mapping, mappings, number, whole


def read(info: Answer | None) -> dict[str, Any] | None:
    """GiB and tokens of an answer of /server_info: {weights_gib, cache_gib, graphs_gib, tokens},
    each null where this release does not tell it; None where it tells nothing."""
    states = mappings(info.object().get("internal_states")) if info is not None else []
    said = mapping(states[0].get("memory_usage")) if states else {}
    graphs = said.get("graph")
    if isinstance(graphs, dict):  # 0.5.23 has one number for each phase
        graphs = sum(filter(None, map(number, graphs.values())))
    found = {
        "weights_gib": number(said.get("weight")),
        "cache_gib": number(said.get("kvcache")),
        "graphs_gib": number(graphs),
        "tokens": whole(said.get("token_capacity")),
    }
    return found if any(value is not None for value in found.values()) else None
