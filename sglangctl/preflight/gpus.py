"""The GPUs: as many as are asked for, of the right kind, in order, with room."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from sglangctl.diagnosis.finding import FAIL, INFO, WARN, Finding
from sglangctl.gpu import health, pcie
from sglangctl.gpu.health import Health
from sglangctl.preflight import peers
from sglangctl.preflight.catalog import finding
from sglangctl.preflight.versions import parts
from sglangctl.proc import oom
from sglangctl.state.config import EngineConfig
from sglangctl.util.values import mapping, mappings, number, text, whole

CUDA13_SINCE = (0, 5, 20)
"""Of SGLang: its torch is built for CUDA 13 from here on."""
CUDA13_DRIVER, CUDA12_DRIVER = (580,), (525, 60, 13)
"""Lowest drivers of CUDA 13 and 12: CUDA Toolkit release notes, table 3."""
LOWEST_CAPABILITY = 7.5
OF_HARDWARE = frozenset([48, 62, 63, 64, 74, 79, 92, 94, 95, 119, 120, 121, 140, 143, 154])
"""Xids after which a GPU, its memory or its link may not be sound (NVIDIA's Xid catalogue); others
mostly tell of a program's fault."""
NO_DRIVER = "no NVIDIA driver"
"""NVML's library is not there, and nvidia-smi does not list GPUs either."""
MISMATCH = ("driver/library version mismatch", "error 18")


def look(engine: EngineConfig, facts: Mapping[str, Any]) -> Iterator[Finding]:
    """Findings on the GPUs of the probe's document; one line of info for `device: cpu`."""
    if engine.preflight.device == "cpu":
        yield finding("gpus-unknown", INFO, "the GPUs are not checked: the flag device is cpu")
        return
    if facts.get("gpus") is None:
        why = text(mapping(facts.get("reasons")).get("gpus")) or "neither NVML nor nvidia-smi"
        if any(sign in why.lower() for sign in MISMATCH):
            fix = "reboot, or unload and load the nvidia kernel modules"
            yield finding("driver-mismatch", FAIL, f"the driver does not answer: {why}", fix)
        elif NO_DRIVER in why:
            yield finding(
                "gpus-unknown",
                WARN,
                f"the engine needs GPUs, and none can be seen: {why}",
                "install NVIDIA's driver, or set `flags: {device: cpu}`",
                _driver(engine),
            )
        else:
            yield finding("gpus-unknown", INFO, f"the GPUs were not checked: {why}")
        return
    known = mappings(facts["gpus"])
    yield from count(engine, known)
    mine = chosen(engine, facts)
    yield from kind(engine, mine)
    yield from order(mine, health.read())
    yield from xids(mine, oom.kernel_log(since=0.0).xids)
    yield from peers.look(engine, mine)


def chosen(engine: EngineConfig, facts: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The engine's GPUs, as far as they are known and of interest."""
    if engine.preflight.device == "cpu":
        return []
    known = mappings(facts.get("gpus"))
    return [gpu for gpu in known if engine.gpus == "all" or gpu.get("index") in engine.gpus]


def count(engine: EngineConfig, known: Sequence[Mapping[str, Any]]) -> Iterator[Finding]:
    """More ranks, or other indices, than the host has."""
    more = {
        "tensor_parallel": engine.tensor_parallel,
        "pipeline parallel": engine.preflight.pipeline_parallel,
        "data parallel": engine.preflight.replicas,
    }
    if engine.gpus == "all" and math.prod(more.values()) > len(known):
        asked = " x ".join(f"{what} {size}" for what, size in more.items() if size > 1)
        yield finding(
            "gpu-count",
            FAIL,
            f"the engine asks for {asked} GPUs and the host has {len(known)}",
            "lower it, or take another host",
        )
    there = {gpu.get("index") for gpu in known}
    absent = [] if engine.gpus == "all" else [at for at in engine.gpus if at not in there]
    if absent:
        yield finding(
            "gpu-count",
            FAIL,
            f"`gpus` names {', '.join(map(str, absent))}, and the host has {len(known)} GPUs",
            "nvidia-smi -L lists them",
        )


def kind(engine: EngineConfig, chosen: Sequence[Mapping[str, Any]]) -> Iterator[Finding]:
    """The driver against CUDA, and the compute capability."""
    drivers = {driver for gpu in chosen if (driver := text(gpu.get("driver")))}
    since13 = parts(engine.version) >= CUDA13_SINCE
    lowest = _lowest(engine)
    for driver in sorted(drivers):
        if parts(driver) < lowest:
            yield finding(
                "driver-old",
                FAIL,
                f"the driver is {driver}, and SGLang {engine.version} has a torch for CUDA "
                f"{13 if since13 else 12}",
                "install a newer driver, and reboot",
                _driver(engine),
            )
    for gpu in chosen:
        capability = number(_number(gpu.get("compute_capability")))
        if capability is not None and capability < LOWEST_CAPABILITY:
            yield finding(
                "gpu-capability",
                FAIL,
                f"GPU {gpu.get('index')} has compute capability {capability}",
                "take another GPU",
                f"{LOWEST_CAPABILITY} or higher",
            )
        if gpu.get("error"):
            yield finding(
                "gpu-lost",
                FAIL,
                f"GPU {gpu.get('index')} cannot be read: {gpu['error']}",
                "dmesg | grep -i xid; then reset it or reboot",
            )


def _lowest(engine: EngineConfig) -> tuple[int, ...]:
    return CUDA13_DRIVER if parts(engine.version) >= CUDA13_SINCE else CUDA12_DRIVER


def _driver(engine: EngineConfig) -> str:
    return f"{'.'.join(map(str, _lowest(engine)))} or newer"


def order(
    chosen: Sequence[Mapping[str, Any]], states: Mapping[int, Health] | None
) -> Iterator[Finding]:
    """Modes and memory of the chosen GPUs; nothing where NVML does not tell them."""
    for gpu in chosen:
        index = whole(gpu.get("index"))
        state = (states or {}).get(-1 if index is None else index)
        if state is None:
            continue
        if state.persistence is False:
            yield finding(
                "gpu-persistence",
                WARN,
                f"GPU {index} has no persistence mode: its driver is loaded again for each start",
                "systemctl enable --now nvidia-persistenced",
            )
        if state.mig:
            yield finding(
                "gpu-mig",
                FAIL,
                f"GPU {index} is divided (MIG): an engine gets a part of it at most",
                f"nvidia-smi -i {index} -mig 0, when nobody uses it",
            )
        if state.rows_failed:
            yield finding(
                "gpu-memory-faults",
                FAIL,
                f"GPU {index} has memory rows that could not be remapped",
                "have it replaced; until then leave it out of `gpus`",
            )
        elif state.rows_pending:
            yield finding(
                "gpu-memory-faults",
                WARN,
                f"GPU {index} has memory rows that are remapped at its next reset",
                f"nvidia-smi --gpu-reset -i {index} when nobody uses it, or reboot",
            )
        if state.ecc is False:
            yield finding("gpu-ecc", INFO, f"GPU {index} has ECC switched off")
        if state.display:
            yield finding("gpu-display", WARN, f"a display is attached to GPU {index}", "")
        if state.power_limit_w and state.power_limit_w < (state.power_default_w or 0):
            yield finding(
                "gpu-power-cap",
                INFO,
                f"GPU {index} is limited to {state.power_limit_w} W of {state.power_default_w} W",
            )
        yield from _link(index, state)


def _link(index: int | None, state: Health) -> Iterator[Finding]:
    """Lanes are lost by a fault; an older slot is what it is. (The generation of an idle link is
    low by itself, so it is not looked at.)"""
    if state.lanes and state.lanes < (state.lanes_most or 0):
        yield finding(
            "pcie-link",
            WARN,
            f"GPU {index} has {state.lanes} of {state.lanes_most} PCIe lanes: each copy to and from "
            "it takes longer",
            "seat the board and its riser anew, look at the slot's bifurcation in the firmware's "
            "setup, and at: lspci -vv | grep LnkSta",
        )
    if state.generation_most and state.generation_most < (state.generation_gpu or 0):
        yield finding(
            "pcie-link",
            INFO,
            f"GPU {index} is for PCIe {state.generation_gpu}, its slot for {state.generation_most}",
        )


def xids(
    chosen: Sequence[Mapping[str, Any]], logged: Sequence[tuple[str, int]]
) -> Iterator[Finding]:
    """What the driver logged of the chosen GPUs since the boot, one line a GPU."""
    for gpu in chosen:
        bus = pcie.name(text(gpu.get("bus_id")) or "").partition(".")[0]
        numbers = [number for at, number in logged if bus and pcie.name(at) == bus]
        if not numbers:
            continue
        bad = sorted(OF_HARDWARE.intersection(numbers))
        said = ", ".join(map(str, bad or sorted(set(numbers))))
        yield finding(
            "gpu-xids",
            WARN if bad else INFO,
            f"the driver logged {len(numbers)} errors of GPU {gpu.get('index')} since the boot "
            f"(Xid {said})",
            "dmesg -T | grep -i xid; then reset the GPU or reboot" if bad else "",
        )


def _number(value: Any) -> Any:
    try:
        return float(value)
    except (TypeError, ValueError):
        return None
