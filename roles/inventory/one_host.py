"""What an engine on one host cannot be, and how many GPUs it needs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from roles.inventory.errors import Path, shown
from roles.inventory.schema import Report

_NODES = "one host: an engine over several hosts is not built yet"
_DISAGGREGATION = "null: prefill and decode on separate engines is not built yet"
_GRPC = "HTTP: readiness is proven over it"
ALONE: dict[str, tuple[tuple[Any, ...], str]] = {
    # On a node of rank 1 or more SGLang's /health is always 200, and nothing else answers.
    "node-rank": ((0,), _NODES),
    "nnodes": ((1,), _NODES),
    "dist-init-addr": ((), _NODES),
    "nccl-init-addr": ((), _NODES),
    "disaggregation-mode": (("null",), _DISAGGREGATION),
    "encoder-only": ((False,), _DISAGGREGATION),
    "language-only": ((False,), _DISAGGREGATION),
    "grpc-mode": ((False,), _GRPC),
    "smg-grpc-mode": ((False,), _GRPC),
}
"""Flag -> the values that one host can have, and why no other."""

_SIZES = {
    "pipeline parallel": ("pp-size", "pipeline-parallel-size"),
    "data parallel": ("dp-size", "data-parallel-size"),
}


def check(engine: Mapping[str, Any], report: Report) -> None:
    """Report flags that need a second host, and fewer GPUs than the engine would use."""
    for name, value in engine["flags"].items():
        values, allowed = ALONE.get(name, ((value,), ""))
        # `nnodes: "2"` is 2 for SGLang's parser.
        if value is not None and str(value) not in map(str, values):
            where: Path = ("flags", name)
            report(where, f"--{name} {shown(value)}", allowed, None)
    _check_gpus(engine, report)


def _check_gpus(engine: Mapping[str, Any], report: Report) -> None:
    """Tensor parallel x pipeline parallel x replicas against `gpus`."""
    if engine["gpus"] == "all" or engine["flags"].get("device") == "cpu":
        return
    factors = {"tensor_parallel": int(engine["tensor_parallel"])}
    for what, names in _SIZES.items():
        size = next(
            (_size(engine["flags"].get(name)) for name in names if name in engine["flags"]), 1
        )
        # With DP attention the replicas share the tensor-parallel GPUs.
        if size > 1 and not (
            what.startswith("data") and engine["flags"].get("enable-dp-attention")
        ):
            factors[what] = size
    needed = 1
    for size in factors.values():
        needed *= size
    cards = len(engine["gpus"])
    if cards < needed:
        product = " x ".join(f"{what} {size}" for what, size in factors.items())
        why = "as tensor_parallel asks for" if len(factors) == 1 else product
        report(("gpus",), f"{cards} GPUs", f"at least {needed}: {why}", None)


def _size(value: Any) -> int:
    try:
        return max(1, int(value))
    except (TypeError, ValueError, OverflowError):
        return 1  # said where the flag's value is looked at
