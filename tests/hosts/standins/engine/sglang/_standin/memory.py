"""How much GPU memory a rank shows in each phase, in MiB."""

from __future__ import annotations

import json
import os

from sglang._standin.options import number, text

CONTEXT = 620.0


class Plan:
    """Memory of one rank: context, then weights, then the key/value cache, then graphs."""

    def __init__(self, fraction: float | None) -> None:
        self.total = total_mib()
        static = (fraction or 0.88) * self.total
        self.weights = number("WEIGHTS_MIB", 0.6 * static)
        self.cache = max(0.0, static - self.weights - CONTEXT)
        self.used = 0.0

    @property
    def free_gb(self) -> float:
        return (self.total - self.used) / 1024


def total_mib() -> float:
    """What the fake nvidia-smi says a GPU has."""
    path = os.environ.get("FAKE_NVIDIA_CONFIG", "/etc/fake-nvidia.json")
    if text("TOTAL_MIB"):
        return number("TOTAL_MIB", 0)
    try:
        with open(path, encoding="utf-8") as file:
            return float(json.load(file).get("memory_total_mib", 97887))
    except (OSError, ValueError):
        return 97887.0
