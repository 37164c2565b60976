"""A GPU's place on PCIe, from folders as sysfs has them."""

from __future__ import annotations

import struct
from pathlib import Path

import pytest

from sglangctl.gpu import pcie
from sglangctl.gpu.pcie import Seat

BAR1 = "0x0000020000000000 0x0000021fffffffff 0x000000000014220c\n"
RESOURCE = (
    "0x00000000f8000000 0x00000000fbffffff 0x0000000000040200\n"
    f"{BAR1}0x0000000000000000 0x0000000000000000 0x0000000000000000\n"
)
"""As of an RTX PRO 6000: 64 MiB of registers, 128 GiB of memory."""


def config(control: int | None, after: int = 0x150) -> bytes:
    """The configuration space of a bridge: advanced error reporting, then ACS."""
    space = bytearray(4096)
    struct.pack_into("<I", space, 0x100, after << 20 | 2 << 16 | 0x0001)
    if control is not None:
        struct.pack_into("<IHH", space, after, 0x1D << 24 | 1 << 16 | 0x000D, 0x5F, control)
    return bytes(space)


@pytest.mark.parametrize(
    ("control", "redirected"),
    [(0x1D, True), (0x0011, False), (0x0004, True), (0x0008, True), (0, False), (None, False)],
)
def test_acs_of_a_bridge(control: int | None, redirected: bool) -> None:
    assert pcie.redirects(config(control)) is redirected


def test_a_short_or_circular_list_of_capabilities_ends() -> None:
    """Who is not root gets 64 bytes; a broken device may point to itself."""
    assert not pcie.redirects(b"\0" * 64)
    assert not pcie.redirects(config(None, after=0x100))
    assert not pcie.redirects(b"\xff" * 4096)


@pytest.fixture
def sys_folder(tmp_path: Path) -> Path:
    """Root port -> switch -> GPU."""
    gpu = tmp_path / "devices/pci0000:80/0000:80:01.1/0000:81:00.0/0000:82:00.0"
    gpu.mkdir(parents=True)
    (gpu.parent / "config").write_bytes(config(0x1D))
    (gpu.parent.parent / "config").write_bytes(config(0x11))
    (gpu / "numa_node").write_text("1\n")
    (gpu / "resource").write_text(RESOURCE)
    devices = tmp_path / "bus/pci/devices"
    devices.mkdir(parents=True)
    (devices / gpu.name).symlink_to(gpu)
    return tmp_path


def test_a_seat(sys_folder: Path) -> None:
    found = pcie.read("00000000:82:00.0", sys_folder)
    assert found == Seat(False, ("0000:81:00.0",), 1, 131072)


@pytest.mark.parametrize(
    ("kind", "translated"), [("DMA", True), ("DMA-FQ", True), ("identity", False), (None, None)]
)
def test_the_mode_of_the_iommu(sys_folder: Path, kind: str | None, translated: bool | None) -> None:
    group = sys_folder / "bus/pci/devices/0000:82:00.0/iommu_group"
    group.mkdir()
    if kind is not None:
        (group / "type").write_text(f"{kind}\n")
    assert pcie.read("00000000:82:00.0", sys_folder).translated is translated


@pytest.mark.parametrize("bus", ["", "00000000:99:00.0", "../../../etc", "0000:82:00.0/.."])
def test_a_device_that_is_not_there(sys_folder: Path, bus: str) -> None:
    assert pcie.read(bus, sys_folder) == Seat()


def test_without_numa_and_with_a_strange_resource(sys_folder: Path) -> None:
    device = sys_folder / "bus/pci/devices/0000:82:00.0"
    (device / "numa_node").write_text("-1\n")
    (device / "resource").write_text("0x0 0x0 0x0\n\nnonsense\n")
    found = pcie.read("0000:82:00.0", sys_folder)
    assert (found.node, found.window_mib) == (None, None)
