"""How two GPUs reach each other, as NVML tells it: what `nvidia-smi topo -m` and `-p2p r` print."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import combinations

from sglangctl.gpu.nvml import Nvml, NvmlError

LEVELS = {0: "PIX", 10: "PIX", 20: "PXB", 30: "PHB", 40: "NODE", 50: "SYS"}
"""nvmlGpuTopologyLevel_t -> the word of nvidia-smi and NCCL; 0: two chips of one board."""
READ, NVLINK = 0, 2
"""Of nvmlGpuP2PCapsIndex_t."""
REASONS = {
    1: "the chipset does not support it",
    2: "the GPU does not support it",
    3: "the GPUs are behind different I/O hubs",
    4: "it is switched off in the driver",
    5: "it is not supported",
}
"""nvmlGpuP2PStatus_t, but for 0 (it works) and what is unknown."""


@dataclass(frozen=True)
class Link:
    """The way between two GPUs. None: this driver does not tell."""

    first: int
    second: int
    level: str | None = None
    """What is between them on PCIe: PIX (one switch), PXB (switches), PHB (the root complex), NODE
    (root complexes of one NUMA node), SYS (the link between processors)."""
    nvlink: bool | None = None
    refused: str | None = None
    """Why the driver has no peer-to-peer access between them."""


def read(indices: Iterable[int]) -> list[Link] | None:
    """Every pair of these GPUs; None where NVML does not start. A lost GPU has no pair."""
    handles = {}
    try:
        nvml = Nvml()
    except NvmlError:
        return None
    for index in sorted(indices):
        try:
            handles[index] = nvml.handle(index)
        except NvmlError:
            continue
    found = []
    for (first, one), (second, other) in combinations(handles.items(), 2):
        level = nvml.between(one, other, "TopologyCommonAncestor")
        by_nvlink = nvml.between(one, other, "P2PStatus", NVLINK)
        found.append(
            Link(
                first,
                second,
                None if level is None else LEVELS.get(level),
                None if by_nvlink is None else by_nvlink == 0,
                REASONS.get(nvml.between(one, other, "P2PStatus", READ) or 0),
            )
        )
    return found
