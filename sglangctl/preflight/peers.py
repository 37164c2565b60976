"""How the engine's GPUs reach each other, and what on the way makes NCCL slow, or wait for ever."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any

from sglangctl.diagnosis.finding import INFO, WARN, Finding
from sglangctl.gpu import links, pcie
from sglangctl.gpu.links import Link
from sglangctl.gpu.pcie import Seat
from sglangctl.preflight.catalog import finding
from sglangctl.proc import procfs
from sglangctl.state.config import EngineConfig
from sglangctl.util.values import text, whole

BETWEEN = {
    "PIX": ("one PCIe switch", "single-switch"),
    "PXB": ("PCIe switches", "single-switch"),
    "PHB": ("the processor's PCIe root", "single-switch"),
    "NODE": ("PCIe roots of one NUMA node", "latency"),
    "SYS": ("the link between processors", "latency"),
}
"""Two GPUs' distance, the nearest first -> what is between them, and the NCCL profile for that."""
ORDER = tuple(BETWEEN)
SHY = (None, "GenuineIntel", "CentaurHauls", "Shanghai")
"""Processors (None: ARM) through which NCCL copies from GPU to GPU only where it is told to; through
others it does by itself (NCCL's src/graph/paths.cc, ncclTopoCheckP2p)."""


def look(engine: EngineConfig, chosen: Sequence[Mapping[str, Any]]) -> Iterator[Finding]:
    """Nothing for an engine of one GPU, nor where the driver tells nothing."""
    if len(chosen) < 2 or (engine.gpus == "all" and engine.tensor_parallel < 2):
        return
    seats, memory = {}, {}
    for gpu in chosen:
        index, bus = whole(gpu.get("index")), text(gpu.get("bus_id"))
        if index is not None and bus:
            seats[index] = pcie.read(bus)
            memory[index] = whole(gpu.get("memory_total_mib"))
    yield from judge(engine, seats, memory, links.read(seats) or (), _vendor())


def judge(
    engine: EngineConfig,
    seats: Mapping[int, Seat],
    memory: Mapping[int, int | None],
    pairs: Collection[Link],
    vendor: str | None,
) -> Iterator[Finding]:
    """Pure. `seats` and `memory` (MiB) by the GPU's index; `vendor` of the processor, as in
    /proc/cpuinfo."""
    nodes = {seat.node for seat in seats.values()} - {None}
    over_pcie = [pair for pair in pairs if not pair.nvlink]
    yield from _topology(pairs, over_pcie, len(nodes), vendor in SHY)
    if pairs and not over_pcie:
        return  # what PCIe does to peer-to-peer traffic is not met
    level = WARN if engine.preflight.peer_to_peer else INFO
    yield from _refused(engine, over_pcie, len(seats))
    translated = sorted(index for index, seat in seats.items() if seat.translated)
    if translated:
        yield finding(
            "pcie-iommu",
            level,
            f"an IOMMU translates what {_gpus(translated)} send: peer-to-peer copies may be slow, "
            "wrong or never end",
            "sed -i 's/^GRUB_CMDLINE_LINUX=\"/&iommu=pt /' /etc/default/grub && update-grub, then "
            "reboot; until then nccl.profile safe",
            "an IOMMU that is off or passes through (iommu=pt)",
        )
    bridges = sorted({bridge for seat in seats.values() for bridge in seat.redirecting})
    if bridges:
        now = "; ".join(f"setpci -s {bridge} ECAP_ACS+6.w=0" for bridge in bridges)
        yield finding(
            "pcie-acs",
            level,
            f"ACS of {', '.join(bridges)} sends copies between GPUs up to the processor: they may "
            "be slow or never end",
            f"until the next boot: {now}; for good: pci=disable_acs_redir={';'.join(bridges)} on the "
            "kernel's command line (not on a host that passes devices to virtual machines)",
        )
    small = [
        index
        for index, seat in seats.items()
        if seat.window_mib and (total := memory.get(index)) and seat.window_mib < total
    ]
    if small:
        yield finding(
            "pcie-window",
            level,
            f"only {seats[small[0]].window_mib} MiB of {_gpus(small)} can be reached over PCIe: "
            "peer-to-peer copies are slow or refused",
            "switch on Resizable BAR and Above 4G Decoding in the firmware's setup",
        )


def _topology(
    pairs: Collection[Link], over_pcie: Collection[Link], nodes: int, shy: bool
) -> Iterator[Finding]:
    if pairs and not over_pcie:
        yield finding("gpu-peers", INFO, "all GPUs reach each other by NVLink")
        return
    known = [pair for pair in over_pcie if pair.level in BETWEEN]
    if known:
        far = max(known, key=lambda pair: ORDER.index(pair.level or ""))
        where = f", on {nodes} NUMA nodes" if nodes > 1 else ""
        what, profile = BETWEEN[far.level or ""]
        if shy and ORDER.index(far.level or "") > ORDER.index("PXB"):
            then = f"goes through host memory there, unless nccl.profile {profile} tells it not to"
        else:
            then = f"copies from GPU to GPU there (nccl.profile {profile} is for such hosts)"
        yield finding(
            "gpu-peers",
            INFO,
            f"the GPUs farthest apart ({far.first} and {far.second}{where}) reach each other "
            f"through {what}: NCCL {then}",
        )


def _refused(engine: EngineConfig, over_pcie: Collection[Link], cards: int) -> Iterator[Finding]:
    """The driver has no peer-to-peer access; SGLang's own all-reduce for two takes it for granted."""
    refused = [pair for pair in over_pcie if pair.refused]
    for pair in refused[:1]:
        more = f" ({len(refused) - 1} more pairs too)" if len(refused) > 1 else ""
        yield finding(
            "gpu-peer-access",
            INFO,
            f"GPUs {pair.first} and {pair.second} have no peer-to-peer access: {pair.refused}"
            f"{more}; NCCL goes through host memory",
        )
    if over_pcie and cards == 2 and engine.tensor_parallel == 2:
        if not engine.preflight.custom_all_reduce:
            return
        yield finding(
            "custom-all-reduce",
            WARN,
            "with two GPUs and no NVLink SGLang uses its own all-reduce, which takes peer-to-peer "
            "access for granted: reported to end the capture of graphs, or to wait for ever",
            "set `flags: {disable-custom-all-reduce: true}`, or {enable-p2p-check: true}",
        )


def _vendor() -> str | None:
    """The processor's; None where it has none (ARM)."""
    try:
        with open(f"{procfs.PROC}/cpuinfo", encoding="ascii", errors="replace") as file:
            found = re.search(r"^vendor_id\s*:\s*(\S+)", file.read(1 << 16), re.M)
    except OSError:
        return None
    return found[1] if found else None


def _gpus(indices: Sequence[int]) -> str:
    return f"GPU{'s' if len(indices) > 1 else ''} {', '.join(map(str, indices))}"
