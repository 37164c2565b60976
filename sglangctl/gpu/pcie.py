"""Where a GPU sits on PCIe and what is between it and another one, from sysfs alone.

Sources: the kernel's Documentation/ABI/testing/sysfs-bus-pci and sysfs-kernel-iommu_groups; PCI
Express Base Specification, 7.7.11 (Access Control Services).
"""

from __future__ import annotations

import re
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from sglangctl.util import lazy_re

SYS = Path("/sys")
EXTENDED = 0x100
"""Where the list of extended capabilities begins in a device's configuration space."""
ACS = 0x0D
REDIRECT = 0x04 | 0x08 | 0x20
"""Of ACS's control word: requests, completions or what a vector chooses go up to the root complex
in place of straight to the other device."""
MOST_CAPABILITIES = 64
BUS = lazy_re.compile(r"[0-9a-f]{4,8}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]")
MEMORY, PREFETCHABLE = 0x200, 0x2000
"""Flags of a line of `resource` (include/linux/ioport.h)."""


@dataclass(frozen=True)
class Seat:
    """One GPU. None: the kernel does not tell."""

    translated: bool | None = None
    """An IOMMU translates its addresses; False: off, or passed through."""
    redirecting: tuple[str, ...] = ()
    """The bridges above it (`0000:80:01.1`) that send peer-to-peer traffic up to the root."""
    node: int | None = None
    """Of NUMA."""
    window_mib: int | None = None
    """The largest prefetchable window of its memory that others can reach (BAR 1)."""


def name(bus_id: str) -> str:
    """The kernel's name of a device; NVML and nvidia-smi write an eight-digit domain."""
    return re.sub(r"^0000(?=[0-9a-f]{4}:)", "", bus_id.lower())


def read(bus_id: str, root: Path = SYS) -> Seat:
    """What sysfs tells of the GPU at `bus_id`. Raises nothing: all None for a device unknown to
    it, and no bridges for one whose configuration is not root's to read."""
    known = name(bus_id)
    device = root / "bus/pci/devices" / known
    if not BUS.fullmatch(known) or not device.exists():
        return Seat()
    kind = _text(device / "iommu_group/type")
    node = _text(device / "numa_node")
    return Seat(
        translated=None if kind is None and (device / "iommu_group").exists() else _moves(kind),
        redirecting=tuple(_redirecting(device)),
        node=int(node) if node and node.isdigit() else None,
        window_mib=_window(_text(device / "resource") or ""),
    )


def redirects(config: bytes) -> bool:
    """Whether a bridge's configuration space has ACS on for peer-to-peer traffic. Pure."""
    at = EXTENDED
    for _ in range(MOST_CAPABILITIES):
        if at < EXTENDED or at + 8 > len(config):
            return False
        (head,) = struct.unpack_from("<I", config, at)
        if head & 0xFFFF == ACS:
            (control,) = struct.unpack_from("<H", config, at + 6)
            return bool(control & REDIRECT)
        at = head >> 20
    return False


def _redirecting(device: Path) -> Iterator[str]:
    """Bridges above a device, the nearest first."""
    for folder in device.resolve().parents:
        if not BUS.fullmatch(folder.name):
            return
        try:
            config = (folder / "config").read_bytes()
        except OSError:
            continue
        if redirects(config):
            yield folder.name


def _moves(kind: str | None) -> bool:
    """Without a group there is no IOMMU; DMA and DMA-FQ translate, identity does not."""
    return kind is not None and kind.startswith("DMA")


def _window(resource: str) -> int | None:
    largest = 0
    for line in resource.splitlines():
        words = line.split()
        if len(words) != 3:
            continue
        begin, end, flags = (int(word, 16) for word in words)
        if flags & MEMORY and flags & PREFETCHABLE and end > begin:
            largest = max(largest, end - begin + 1)
    return largest >> 20 or None


def _text(path: Path) -> str | None:
    try:
        return path.read_text("ascii", "replace").strip()
    except OSError:
        return None
