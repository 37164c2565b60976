"""What is said of the ways between GPUs: topology, IOMMU, ACS, windows, peer-to-peer access."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

import pytest

from sglangctl.diagnosis.finding import Finding
from sglangctl.gpu import health, links
from sglangctl.gpu.health import Health
from sglangctl.gpu.links import Link
from sglangctl.gpu.nvml import NvmlError
from sglangctl.gpu.pcie import Seat
from sglangctl.preflight import gpus, peers
from sglangctl.state.config import EngineConfig, Preflight
from tests.support.engine_config import ENGINE
from tests.support.inventory_case import engine as spec_of

EIGHT = replace(ENGINE, tensor_parallel=8)
TWO = replace(ENGINE, tensor_parallel=2)
GOOD = Seat(False, (), 0, 131072)


def judged(
    engine: EngineConfig,
    seats: dict[int, Seat],
    pairs: Iterable[Link],
    vendor: str | None = "AuthenticAMD",
) -> dict[str, Finding]:
    found = list(peers.judge(engine, seats, dict.fromkeys(seats, 97887), list(pairs), vendor))
    assert len({one.id for one in found}) == len(found)
    return {one.id: one for one in found}


def pairs_of(count: int, level: str | None, nvlink: bool = False) -> list[Link]:
    return [
        Link(one, other, level, nvlink) for one in range(count) for other in range(one + 1, count)
    ]


def test_eight_cards_behind_two_sockets_with_nothing_in_the_way() -> None:
    seats = {index: replace(GOOD, node=index // 4) for index in range(8)}
    pairs = [
        replace(pair, level="SYS") if pair.first < 4 <= pair.second else pair
        for pair in pairs_of(8, "NODE")
    ]
    (only,) = judged(EIGHT, seats, pairs).values()
    assert (only.id, only.level) == ("gpu-peers", "info")
    assert "0 and 4, on 2 NUMA nodes" in only.seen and "profile latency" in only.seen


@pytest.mark.parametrize(
    ("vendor", "level", "direct"),
    [
        ("AuthenticAMD", "SYS", True),
        ("HygonGenuine", "PHB", True),
        ("GenuineIntel", "PXB", True),
        ("GenuineIntel", "PHB", False),
        ("GenuineIntel", "SYS", False),
        (None, "PHB", False),
    ],
)
def test_what_nccl_does_by_itself(vendor: str | None, level: str, direct: bool) -> None:
    found = judged(EIGHT, dict.fromkeys(range(2), GOOD), pairs_of(2, level), vendor)["gpu-peers"]
    assert ("copies from GPU to GPU" in found.seen) == direct
    assert ("host memory" in found.seen) != direct


def test_the_processor_by_proc(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(peers.procfs, "PROC", str(tmp_path))
    assert peers._vendor() is None
    (tmp_path / "cpuinfo").write_text(
        "processor\t: 0\nvendor_id\t: GenuineIntel\ncpu family\t: 6\n"
    )
    assert peers._vendor() == "GenuineIntel"
    (tmp_path / "cpuinfo").write_text("processor\t: 0\nBogoMIPS\t: 50.00\n")
    assert peers._vendor() is None


def test_one_switch() -> None:
    (only,) = judged(EIGHT, dict.fromkeys(range(8), GOOD), pairs_of(8, "PIX")).values()
    assert "single-switch" in only.seen and "NUMA" not in only.seen


def test_nvlink_makes_what_pcie_does_unimportant() -> None:
    seats = dict.fromkeys(range(8), Seat(True, ("0000:80:01.1",), 0, 256))
    (only,) = judged(EIGHT, seats, pairs_of(8, "SYS", nvlink=True)).values()
    assert (only.level, "NVLink" in only.seen) == ("info", True)


@pytest.mark.parametrize(("used", "level"), [(True, "warn"), (False, "info")])
def test_what_is_in_the_way_of_peer_to_peer(used: bool, level: str) -> None:
    """With NCCL_P2P_DISABLE=1 nothing is on that way."""
    engine = replace(EIGHT, preflight=Preflight(peer_to_peer=used))
    bad = Seat(True, ("0000:80:01.1", "0000:81:00.0"), 0, 256)
    found = judged(engine, {**dict.fromkeys(range(7), GOOD), 7: bad}, pairs_of(8, "PHB"))
    assert set(found) == {"gpu-peers", "pcie-iommu", "pcie-acs", "pcie-window"}
    assert all(one.level == level for id, one in found.items() if id != "gpu-peers")
    assert "GPU 7" in found["pcie-iommu"].seen and "iommu=pt" in found["pcie-iommu"].fix
    assert "setpci -s 0000:80:01.1 ECAP_ACS+6.w=0; setpci -s 0000:81:" in found["pcie-acs"].fix
    assert "disable_acs_redir=0000:80:01.1;0000:81:00.0 " in found["pcie-acs"].fix
    assert "256 MiB of GPU 7" in found["pcie-window"].seen


def test_an_iommu_is_told_where_the_driver_tells_of_no_pair() -> None:
    bad = dict.fromkeys(range(2), Seat(True))
    assert set(judged(EIGHT, bad, [])) == {"pcie-iommu"}


def test_two_cards_and_sglangs_own_all_reduce() -> None:
    seats, pair = {0: GOOD, 1: GOOD}, Link(0, 1, "PHB", False)
    assert judged(TWO, seats, [pair])["custom-all-reduce"].level == "warn"
    off = replace(TWO, preflight=Preflight(custom_all_reduce=False))
    assert "custom-all-reduce" not in judged(off, seats, [pair])
    assert "custom-all-reduce" not in judged(TWO, seats, [replace(pair, nvlink=True)])
    assert "custom-all-reduce" not in judged(
        EIGHT, dict.fromkeys(range(8), GOOD), pairs_of(8, "PHB")
    )


def test_a_driver_without_peer_to_peer() -> None:
    pairs = [
        replace(pair, refused="the chipset does not support it") for pair in pairs_of(4, "PHB")
    ]
    found = judged(EIGHT, dict.fromkeys(range(4), GOOD), pairs)["gpu-peer-access"]
    assert "chipset" in found.seen and "5 more pairs" in found.seen and found.level == "info"


def test_one_gpu_has_no_peers() -> None:
    cards = [{"index": index, "bus_id": "0000:01:00.0"} for index in range(2)]
    assert not list(peers.look(ENGINE, cards))
    assert not list(peers.look(replace(ENGINE, gpus=(0,)), cards[:1]))


def test_pairs_as_nvml_tells_them(monkeypatch: pytest.MonkeyPatch) -> None:
    """Three GPUs, the second lost; an older driver without one of the calls."""

    class Library:
        def handle(self, index: int) -> int:
            if index == 1:
                raise NvmlError("lost")
            return index

        def between(self, one: int, other: int, name: str, *which: int) -> int | None:
            assert (one, other) == (0, 2)
            return {"TopologyCommonAncestor": 50}.get(name, {(0,): 1, (2,): 5}.get(which))

    monkeypatch.setattr(links, "Nvml", Library)
    assert links.read([2, 0, 1]) == [Link(0, 2, "SYS", False, "the chipset does not support it")]
    monkeypatch.setattr(Library, "between", lambda *_: None)
    assert links.read([0, 2]) == [Link(0, 2)]


@pytest.mark.parametrize(
    ("logged", "level", "said"),
    [
        (
            [("0000:c1:00", 13), ("0000:c1:00", 13)],
            "info",
            "2 errors of GPU 3 since the boot (Xid 13)",
        ),
        ([("0000:c1:00", 13), ("00000000:c1:00", 79)], "warn", "(Xid 79)"),
        ([("0000:c2:00", 79)], None, ""),
        ([], None, ""),
    ],
)
def test_xids_since_the_boot(logged: list[tuple[str, int]], level: str | None, said: str) -> None:
    found = list(gpus.xids([{"index": 3, "bus_id": "00000000:C1:00.0"}], logged))
    assert [one.level for one in found] == ([level] if level else [])
    assert all(said in one.seen for one in found)


@pytest.mark.parametrize(
    ("state", "wanted"),
    [
        (Health(lanes=16, lanes_most=16, generation_most=5, generation_gpu=5), []),
        (Health(lanes=8, lanes_most=16), [("pcie-link", "warn")]),
        (Health(generation_most=4, generation_gpu=5), [("pcie-link", "info")]),
        (Health(power_limit_w=300, power_default_w=600), [("gpu-power-cap", "info")]),
        (Health(power_limit_w=600, power_default_w=600), []),
    ],
)
def test_links_and_power(state: Health, wanted: list[tuple[str, str]]) -> None:
    found = gpus.order([{"index": 0}], {0: state})
    assert [(one.id, one.level) for one in found] == wanted


def test_health_reads_watts(monkeypatch: pytest.MonkeyPatch) -> None:
    class Library:
        def handle(self, index: int) -> int:
            return index

        def number(self, handle: int, name: str) -> int | None:
            return {"EnforcedPowerLimit": 300_500, "MaxPcieLinkWidth": 16}.get(name)

        def numbers(self, handle: int, name: str, count: int) -> tuple[int, ...] | None:
            return None

    found = health.one(Library(), 0)  # type: ignore[arg-type]
    assert found == Health(power_limit_w=300, lanes_most=16)


def test_what_the_inventory_says_of_peer_to_peer() -> None:
    plain = spec_of("flags: {}\n").preflight
    assert plain.peer_to_peer and plain.custom_all_reduce
    safe = spec_of("nccl: {profile: safe}\n").preflight
    assert not safe.peer_to_peer and not safe.custom_all_reduce
    back = spec_of("nccl: {profile: safe, overrides: {P2P_DISABLE: null}}\n").preflight
    assert back.peer_to_peer
    assert not spec_of("flags: {enable-p2p-check: true}\n").preflight.custom_all_reduce
