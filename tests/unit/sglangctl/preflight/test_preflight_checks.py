"""Single checks of the gate `before`: host, GPUs, drafter, network. Each by its judgement."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from sglangctl.diagnosis.finding import Finding
from sglangctl.gpu import health
from sglangctl.gpu.health import Health
from sglangctl.gpu.nvml import NvmlError
from sglangctl.preflight import configs, drafter, gpus, host, model, network
from sglangctl.state.config import Drafter, Preflight
from sglangctl.state.paths import Paths
from tests.support.engine_config import ENGINE
from tests.support.inventory_case import engine as spec_of
from tests.support.safetensors_files import shards, write

NEW = replace(ENGINE, version="0.5.23")
CARD = {
    "index": 0,
    "name": "NVIDIA RTX PRO 6000 Blackwell Server Edition",
    "compute_capability": "12.0",
    "driver": "580.95.05",
    "memory_total_mib": 97887,
}
EIGHT = [{**CARD, "index": index} for index in range(8)]


def levels(found: Iterable[Finding]) -> dict[str, str]:
    return {one.id: one.level for one in found}


def test_the_host_with_more_weights_than_memory_passes(tmp_path: Path) -> None:
    """8 x 97,887 MiB of GPU memory, 449 GiB of RAM, 547 GB of weights: they are only mapped."""
    kimi = replace(NEW, tensor_parallel=8)
    facts = {
        "gpus": EIGHT,
        "memory": {"available_mib": 449 * 1024, "swap_total_mib": 0, "swap_free_mib": 0},
        "disks": {name: {"free_mib": 10**6, "device": 1} for name in host.folders("kimi")},
    }
    assert levels(gpus.look(kimi, facts)) == {}
    assert levels(host.look(kimi, facts, Paths(tmp_path))) == {}
    (low,) = host.memory(kimi, {"memory": {"available_mib": 9 * 1024}})
    assert (low.id, low.level) == ("host-memory", "warn") and "10 processes" in low.seen


@pytest.mark.parametrize(
    ("driver", "version", "wanted"),
    [
        ("580.65.06", "0.5.23", {}),
        ("575.57.08", "0.5.23", {"driver-old": "fail"}),
        ("575.57.08", "0.5.16", {}),
        ("520.61.05", "0.5.16", {"driver-old": "fail"}),
        ("590.1", "0.6.0", {}),
    ],
)
def test_the_driver_for_the_cuda_of_the_engines_torch(
    driver: str, version: str, wanted: dict[str, str]
) -> None:
    cards = [{**CARD, "driver": driver}]
    assert levels(gpus.kind(replace(NEW, version=version), cards)) == wanted


def test_an_old_and_a_lost_gpu() -> None:
    assert levels(gpus.kind(NEW, [{**CARD, "compute_capability": "7.0"}])) == {
        "gpu-capability": "fail"
    }
    assert levels(gpus.kind(NEW, [{"index": 1, "error": "GPU is lost"}])) == {"gpu-lost": "fail"}
    assert levels(gpus.kind(NEW, [{"index": 1}])) == {}


def test_a_driver_that_was_upgraded_under_its_module() -> None:
    why = "NVML does not start: Driver/library version mismatch (error 18); the driver was upgraded"
    facts: dict[str, Any] = {"gpus": None, "reasons": {"gpus": why}}
    assert levels(gpus.look(NEW, facts)) == {"driver-mismatch": "fail"}
    assert levels(gpus.look(NEW, {"gpus": None})) == {"gpus-unknown": "info"}


def test_a_host_without_a_driver() -> None:
    why = "libnvidia-ml.so.1 is not installed: no NVIDIA driver; nvidia-smi: not installed"
    (found,) = gpus.look(NEW, {"gpus": None, "reasons": {"gpus": why}})
    assert (found.id, found.level, found.needed) == ("gpus-unknown", "warn", "580 or newer")
    assert "device: cpu" in found.fix


@pytest.mark.parametrize(
    ("state", "wanted"),
    [
        (Health(True, True, False, False, False, False), {}),
        (Health(), {}),
        (Health(persistence=False), {"gpu-persistence": "warn"}),
        (Health(ecc=False), {"gpu-ecc": "info"}),
        (Health(mig=True), {"gpu-mig": "fail"}),
        (Health(rows_pending=True), {"gpu-memory-faults": "warn"}),
        (Health(rows_pending=True, rows_failed=True), {"gpu-memory-faults": "fail"}),
        (Health(display=True), {"gpu-display": "warn"}),
    ],
)
def test_modes_and_faults(state: Health, wanted: dict[str, str]) -> None:
    assert levels(gpus.order([CARD], {0: state})) == wanted
    assert levels(gpus.order([{**CARD, "index": 1}], {0: state})) == {}
    assert levels(gpus.order([CARD], None)) == {}


def test_health_is_read_from_what_nvml_tells(monkeypatch: pytest.MonkeyPatch) -> None:
    class Library:
        def count(self) -> int:
            return 2

        def handle(self, index: int) -> int:
            if index == 1:
                raise NvmlError("lost")
            return index

        def number(self, handle: int, name: str) -> int | None:
            return {"PersistenceMode": 1}.get(name)

        def numbers(self, handle: int, name: str, count: int) -> tuple[int, ...] | None:
            return {"EccMode": (1, 1), "RemappedRows": (0, 2, 1, 0)}.get(name)

    monkeypatch.setattr(health, "Nvml", Library)
    assert health.read() == {
        0: Health(persistence=True, ecc=True, mig=None, rows_pending=True, rows_failed=False),
        1: Health(),
    }


@pytest.mark.parametrize(
    ("free", "wanted"),
    [
        ({}, {}),
        ({"/opt/sglang/venvs": 5 * 1024}, {"disk-full": "warn"}),
        ({"/opt/sglang/venvs": 10}, {"disk-full": "fail"}),
        ({"/var/log/sglang/kimi": 10}, {"disk-full": "fail"}),
    ],
)
def test_room_on_the_disks(free: dict[str, int], wanted: dict[str, str]) -> None:
    known = {
        name: {"free_mib": free.get(name, 10**6), "device": at, "free_inodes": 9}
        for at, name in enumerate(host.folders("kimi"))
    }
    assert levels(host.disks(NEW, known)) == wanted


def test_one_full_disk_is_said_once_and_a_read_only_one() -> None:
    full = {name: {"free_mib": 10, "device": 1} for name in host.folders("kimi")}
    assert len(list(host.disks(NEW, full))) == 1
    closed = {name: {"free_mib": 10**6, "device": 1, "read_only": True} for name in full}
    (one,) = host.disks(NEW, closed)
    assert one.level == "fail" and "read-only" in one.seen and "make room" not in one.fix


@pytest.mark.parametrize(("free", "found"), [(0, 1), (1, 0), (None, 0)])
def test_a_file_system_without_free_inodes(free: int | None, found: int) -> None:
    """None: btrfs, which counts none and says 0 of 0, must not be refused."""
    known = {
        name: {"free_mib": 10**6, "device": 1, "free_inodes": free} for name in host.folders("kimi")
    }
    said = list(host.disks(NEW, known))
    assert len(said) == found and all("inode" in one.seen and not one.needed for one in said)


def test_an_old_glibc_and_a_pending_reboot(tmp_path: Path) -> None:
    assert levels(host.libc(NEW, (2, 31))) == {"host-glibc": "fail"}
    assert levels(host.libc(NEW, (2, 35))) == {}
    assert levels(host.libc(replace(NEW, version="0.5.9"), (2, 31))) == {}
    assert levels(host.libc(NEW, None)) == {}
    file = tmp_path / "reboot-required"
    assert levels(host.reboot(file)) == {}
    file.write_text("")
    (plain,) = host.reboot(file)
    file.with_name("reboot-required.pkgs").write_text("libc6\nnvidia-driver-580\n")
    (driver,) = host.reboot(file)
    assert "NVIDIA" not in plain.seen and "NVIDIA" in driver.seen
    assert plain.level == driver.level == "warn"


TARGET = {"architectures": ["LlamaForCausalLM"], "hidden_size": 4096, "vocab_size": 128256}
DRAFT = {"architectures": ["LlamaForCausalLMEagle3"], "hidden_size": 4096, "vocab_size": 128256}


@pytest.mark.parametrize(
    ("algorithm", "change", "wanted"),
    [
        ("EAGLE3", {}, {}),
        ("EAGLE", {}, {"drafter-algorithm": "warn"}),
        ("EAGLE3", {"architectures": ["LlamaForCausalLM"]}, {"drafter-algorithm": "warn"}),
        (
            "EAGLE",
            {"architectures": ["LlamaForCausalLM"], "num_hidden_layers": 16},
            {"drafter-algorithm": "warn"},
        ),
        ("EAGLE", {"architectures": ["LlamaForCausalLM"], "num_hidden_layers": 1}, {}),
        ("EAGLE", {"architectures": ["LlamaForCausalLMEagle"], "num_hidden_layers": 16}, {}),
        # A model whose own heads draft: it is its own drafter.
        (
            "EAGLE",
            {
                **{"architectures": ["DeepseekV3ForCausalLM"], "num_hidden_layers": 61},
                "num_nextn_predict_layers": 1,
            },
            {},
        ),
        ("STANDALONE", {"architectures": ["LlamaForCausalLM"], "num_hidden_layers": 16}, {}),
        ("EAGLE3", {"hidden_size": 2048}, {"drafter-shape": "fail"}),
        ("EAGLE3", {"hidden_size": 2048, "target_hidden_size": 4096}, {}),
        ("EAGLE3", {"vocab_size": 1000}, {"drafter-shape": "warn"}),
        ("EAGLE3", {"draft_vocab_size": 32000}, {}),
        ("STANDALONE", {"architectures": ["LlamaForCausalLM"], "hidden_size": 1024}, {}),
        ("EAGLE3", {"hidden_size": "x", "vocab_size": None, "architectures": 3}, {}),
    ],
)
def test_a_drafter_for_its_target(
    algorithm: str, change: dict[str, Any], wanted: dict[str, str]
) -> None:
    assert levels(drafter.judge(algorithm, TARGET, {**DRAFT, **change})) == wanted
    nested = {"architectures": ["KimiK25"], "text_config": TARGET}
    assert levels(drafter.judge(algorithm, nested, {**DRAFT, **change})) == wanted


def test_a_drafter_is_read_from_its_folder(tmp_path: Path) -> None:
    for name, document in (("model", TARGET), ("draft", {**DRAFT, "hidden_size": 2048})):
        shards(tmp_path / name)
        write(tmp_path / name / "config.json", document)
    engine = replace(
        NEW,
        user="root",
        model=str(tmp_path / "model"),
        drafter=Drafter("EAGLE3", str(tmp_path / "draft")),
    )

    def both() -> list[dict[str, Any]]:
        return [configs.of(one.model) for one in model.look(engine, Paths(tmp_path))]

    assert levels(drafter.look(engine, *both())) == {"drafter-shape": "fail"}
    deep = '{"a":' * 500 + "{}" + "}" * 500
    cases = (("{", {}), ("", {}), ("[]", {}), ("\ufeff{}", {}), (deep, json.loads(deep)))
    for broken, known in cases:
        (tmp_path / "draft/config.json").write_text(broken, encoding="utf-8")
        assert both() == [TARGET, known]
        assert levels(drafter.look(engine, *both())) == {}
    assert configs.of(None) == {}
    assert levels(drafter.look(replace(engine, drafter=None), TARGET, DRAFT)) == {}


def test_an_open_listener_without_a_key_is_a_warning() -> None:
    nobody = Preflight(authenticated=False)
    for listen, wanted in (("0.0.0.0", {"listener-open": "warn"}), ("127.0.0.1", {}), ("::1", {})):
        assert levels(network.look(replace(NEW, listen=listen, preflight=nobody), {})) == wanted
    assert levels(network.look(replace(NEW, listen="0.0.0.0"), {})) == {}


def test_an_engine_without_a_key_on_a_public_address(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(network.addresses, "public", lambda: ["8.8.4.4"])
    nobody = Preflight(authenticated=False)
    for listen, exposed in (
        ("0.0.0.0", True),
        ("::", True),
        ("8.8.4.4", True),
        ("10.0.0.1", False),
        ("127.0.0.1", False),
        ("gpu1", False),
    ):
        found = levels(network.look(replace(NEW, listen=listen, preflight=nobody), {}))
        assert found.get("listener-exposed") == ("fail" if exposed else None), listen
        assert not levels(network.look(replace(NEW, listen=listen), {}))


@pytest.mark.parametrize(
    ("python", "version", "wanted"),
    [
        ("python3.9", "0.5.23", {"host-python": "fail"}),
        ("python3.9", "0.5.16", {}),
        ("python3.12", "0.5.23", {}),
        ("python3", "0.5.23", {}),
        ("python-none", "0.5.23", {}),
    ],
)
def test_the_interpreter_by_the_name_of_its_file(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    python: str,
    version: str,
    wanted: dict[str, str],
) -> None:
    for name in ("python3.9", "python3.12"):
        (tmp_path / name).write_text("")
        (tmp_path / name).chmod(0o755)
    (tmp_path / "python3").symlink_to("python3.12")
    monkeypatch.setenv("PATH", str(tmp_path))
    engine = replace(NEW, version=version, preflight=Preflight(python=python))
    assert levels(host.python(engine)) == wanted


def test_shared_memory_for_several_ranks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    two = replace(NEW, tensor_parallel=2)
    assert levels(host.shared_memory(two, tmp_path / "gone")) == {}
    monkeypatch.setattr(host, "SHM_MIB", 1)
    assert levels(host.shared_memory(two, tmp_path)) == {}
    monkeypatch.setattr(host, "SHM_MIB", 1 << 40)
    assert levels(host.shared_memory(two, tmp_path)) == {"host-shm": "warn"}
    assert levels(host.shared_memory(NEW, tmp_path)) == {}


def test_all_ranks_are_counted() -> None:
    two = replace(NEW, tensor_parallel=2, preflight=Preflight(pipeline_parallel=2, replicas=2))
    (found,) = gpus.count(two, EIGHT[:7])
    assert "tensor_parallel 2 x pipeline parallel 2 x data parallel 2 GPUs" in found.seen
    assert not list(gpus.count(two, EIGHT))


def test_a_derived_port_that_is_taken() -> None:
    spec = spec_of("port: 8000\nflags: {enable-dp-attention: true}\n")
    ports = spec.preflight.derived_ports
    assert ports == (8013, *range(8233, 8240))
    assert spec_of("port: 8000\n").preflight.derived_ports == ()
    owner = {"pid": 5, "name": "node", "unit": None}
    facts = {"listening": [{"port": 8234, "owners": [owner]}]}
    engine = replace(NEW, preflight=Preflight(derived_ports=ports))
    (found,) = network.look(engine, facts)
    assert (found.id, found.level) == ("port-derived", "fail")
    assert "port 8234" in found.seen and "node (pid 5, no unit)" in found.seen


def test_findings_are_json() -> None:
    json.dumps([one.to_json() for one in network.look(NEW, {})])
