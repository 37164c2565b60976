"""What decides how GPUs reach each other, as one document that can be compared with a later one.

`nvidia-smi topo -m` is not asked: it prints what NVML and sysfs tell here without a parser (levels,
NVLink and refused access in links.py, the NUMA node in pcie.py), and its columns differ by driver.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from sglangctl.gpu import links, pcie
from sglangctl.gpu.gpus import Gpu


def read(chosen: Sequence[Gpu], root: Path = pcie.SYS) -> dict[str, Any]:
    """The GPUs with their way up through PCIe, and every pair of them.

    `links` is null where NVML does not tell (the GPUs are from nvidia-smi).
    """
    pairs = links.read(gpu.index for gpu in chosen) if chosen else []
    return {
        "gpus": [
            {
                "index": gpu.index,
                "uuid": gpu.uuid,
                "name": gpu.name,
                "path": pcie_path(gpu.bus_id, root),
            }
            for gpu in sorted(chosen, key=lambda gpu: gpu.index)
        ],
        "links": None if pairs is None else [asdict(pair) for pair in pairs],
    }


def pcie_path(bus_id: str, root: Path = pcie.SYS) -> str:
    """`pci0000:80/0000:80:01.1/0000:81:00.0`: root complex, bridges, GPU; the GPU alone where
    sysfs does not know it."""
    known = pcie.name(bus_id)
    device = root / "bus/pci/devices" / known
    if not pcie.BUS.fullmatch(known) or not device.exists():
        return known
    return os.path.relpath(device.resolve(), (root / "devices").resolve())
