"""Do the model and its cache fit the GPUs, and do the ranks fit the model?"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any

from sglangctl.diagnosis.finding import FAIL, INFO, WARN, Finding
from sglangctl.gpu.gpus import Gpu
from sglangctl.preflight import configs, estimate, model
from sglangctl.preflight.catalog import finding
from sglangctl.preflight.estimate import Estimate
from sglangctl.state.config import EngineConfig
from sglangctl.state.paths import Paths
from sglangctl.util.values import mappings, whole

LEAST_RESERVE_MIB = 1536
"""That SGLang 0.5.23 keeps back at least (memory_hook, post-capture sizing)."""
UNSURE = 0.9
"""Share of the weights' files that are certainly loaded: some hold layers that are not."""


def look(
    engine: EngineConfig,
    sizes: Sequence[int],
    config: Mapping[str, Any],
    gpus: Sequence[Mapping[str, Any]],
    leaving: Collection[int] | None,
    draft: Mapping[str, Any],
) -> Iterator[Finding]:
    """
    + draft: the drafter's config.json
    + sizes: bytes of the tensors of model and drafter; 0 where they are not known
    + gpus: the engine's, of the probe's document
    + leaving: pids that end with the switch; None: nobody knows (it is refused), so all count
    """
    if config:
        yield from heads(engine, config)
    room = [
        (total, total - staying(gpu, leaving))
        for gpu in gpus
        if (total := whole(gpu.get("memory_total_mib")))
    ]
    if room and config and sizes and sizes[0]:
        total, free = min(room, key=lambda one: one[1])
        drafter = sizes[1] if len(sizes) > 1 else 0
        yield from judge(
            engine, estimate.of(engine, sizes[0], drafter, config, total, free, draft), config
        )


def expected(engine: EngineConfig, paths: Paths, gpus: Iterable[Gpu]) -> Estimate | None:
    """The estimate of an engine that runs, as if nothing else were on its GPUs; None where model or
    GPUs do not tell enough."""
    if engine.preflight.device == "cpu":
        return None
    mine = [gpu for gpu in gpus if engine.gpus == "all" or gpu.index in engine.gpus]
    total = min((gpu.memory_total_mib for gpu in mine if gpu.memory_total_mib), default=0)
    looked = model.look(engine, paths) if total else []
    sizes = [one.model.bytes if one.model else 0 for one in looked]
    if not sizes or not sizes[0]:
        return None
    config, *others = [configs.of(one.model) for one in looked]
    drafter, draft = (sizes[1], others[0]) if others else (0, {})
    return estimate.of(engine, sizes[0], drafter, config, total, total, draft) if config else None


def heads(engine: EngineConfig, config: Mapping[str, Any]) -> Iterator[Finding]:
    """SGLang's models assert that their heads can be shared out."""
    found = estimate.heads_in_the_way(engine, config)
    if found is not None:
        yield finding(
            "model-heads",
            FAIL,
            f"the model has {found[0]} attention heads, which {found[1]} ranks cannot share",
            "set `tensor_parallel` to a number that divides them",
        )


def staying(gpu: Mapping[str, Any], leaving: Collection[int] | None) -> int:
    """MiB of a GPU that processes hold which do not end."""
    held = 0
    if leaving is None:
        return held
    for row in gpu.get("processes") or ():
        if isinstance(row, (list, tuple)) and len(row) == 2 and row[0] not in leaving:
            held += whole(row[1]) or 0
    return held


def leaving(plan: Mapping[str, Any]) -> set[int]:
    """The pids that a switch's plan ends."""
    steps = [*mappings(plan.get("units_to_stop")), *mappings(plan.get("containers_to_stop"))]
    found = {pid for step in steps for pid in step["pids"]}
    return found | {holder["pid"] for holder in mappings(plan.get("processes_to_end"))}


def judge(engine: EngineConfig, found: Estimate, config: Mapping[str, Any]) -> Iterator[Finding]:
    """One line with the parts; a failure only where no way of counting makes the weights fit."""
    wanted = estimate.context(engine, config)
    if not found.fits:
        certain = engine.preflight.as_stored and _too_large(engine, found)
        yield finding(
            "gpu-memory",
            FAIL if certain else WARN,
            f"the weights leave no room for the key/value cache: {sentence(found)}",
            "more GPUs (`tensor_parallel`), a quantised model, or a higher "
            "`flags: {mem-fraction-static: ...}`",
        )
        return
    if found.rest < estimate.CONTEXT_MIB:
        yield finding(
            "gpu-memory",
            WARN,
            f"mem-fraction-static leaves too little beside the graphs: {sentence(found)}",
            "set `flags: {mem-fraction-static: ...}` lower, or cuda-graph-max-bs-decode",
            f"{_gib(estimate.CONTEXT_MIB)} GiB for CUDA and NCCL at least",
        )
    else:
        yield finding("gpu-memory", INFO, f"estimated for each GPU: {sentence(found)}")
    if found.tokens is not None and wanted is not None and found.tokens < wanted:
        asked = engine.preflight.context_length is not None
        yield finding(
            "gpu-context",
            WARN if asked else INFO,
            f"about {found.tokens:,} tokens fit into the key/value cache, and a request may have "
            f"{wanted:,} ({'context-length' if asked else 'config.json'}): longer ones are refused",
            "set `flags: {context-length: ...}` lower, or kv-cache-dtype: fp8_e4m3"
            if asked
            else "",
        )


def sentence(found: Estimate) -> str:
    """The parts of an estimate."""
    parts = [f"weights {_gib(found.weights)}"]
    if found.drafter:
        parts.append(f"drafter {_gib(found.drafter)}")
    if found.fits:
        tokens = "" if found.tokens is None else f" ({found.tokens:,} tokens)"
        parts.append(f"key/value cache {_gib(found.cache)}{tokens}")
    if found.graphs:
        parts.append(f"graphs {_gib(found.graphs)}")
    parts.append(f"CUDA, NCCL and activations {_gib(found.rest)}")
    return f"{', '.join(parts)}, of {_gib(found.free)} GiB free"


def _too_large(engine: EngineConfig, found: Estimate) -> bool:
    room = found.free - found.rest - found.graphs
    if engine.preflight.mem_fraction is None:
        # SGLang may size its cache after the graphs, and then keeps less back.
        room = found.free - estimate.CONTEXT_MIB - LEAST_RESERVE_MIB
    return (found.weights + found.drafter) * UNSURE > room


def _gib(mib: int) -> str:
    return f"{mib / 1024:.1f}"
