"""A healthy host with eight GPUs: nothing but info, in seconds, and nothing read again."""

from __future__ import annotations

import json
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from sglangctl.gpu import health, links, pcie
from sglangctl.gpu.health import Health
from sglangctl.gpu.links import Link
from sglangctl.gpu.pcie import Seat
from sglangctl.preflight import before, host, model
from sglangctl.proc import oom
from sglangctl.state.config import EngineConfig, Preflight
from sglangctl.state.paths import Paths
from sglangctl.weights import safetensors
from tests.support.engine_config import ENGINE
from tests.support.safetensors_files import write

CARDS = 8
SHARDS = 64
TENSORS = 600
"""Of a shard; the first one has all but a few bytes of it."""
SHARD_BYTES = 547 * 10**9 // SHARDS
FACTS: dict[str, Any] = {
    "gpus": [
        {
            **{"index": index, "bus_id": f"00000000:{index + 1:02x}:00.0"},
            **{"name": "NVIDIA RTX PRO 6000 Blackwell Server Edition", "driver": "580.95.05"},
            **{"compute_capability": "12.0", "memory_total_mib": 97887, "processes": []},
        }
        for index in range(CARDS)
    ],
    "memory": {
        **{"total_mib": 449 * 1024, "available_mib": 440 * 1024},
        **{"swap_total_mib": 0, "swap_free_mib": 0},
    },
    "disks": {name: {"free_mib": 10**6, "device": 1} for name in host.folders("kimi")},
    "plans": {"kimi": {"refused": False, "units_to_stop": [], "processes_to_end": []}},
    "listening": [],
}
CONFIG = {
    "architectures": ["KimiK25ForConditionalGeneration"],
    "text_config": {
        **{"num_hidden_layers": 61, "num_attention_heads": 64, "vocab_size": 163840},
        **{"kv_lora_rank": 512, "qk_rope_head_dim": 64, "max_position_embeddings": 262144},
    },
}


def shard(path: Path, number: int) -> list[str]:
    """A whole file of its full length, with nothing in it: it takes a header's place on the disk."""
    small = {
        f"layers.{number}.experts.{at}.weight_scale": [at * 4, at * 4 + 4] for at in range(TENSORS)
    }
    begin = TENSORS * 4
    header = {
        name: {"dtype": "F32", "shape": [1], "data_offsets": offsets}
        for name, offsets in small.items()
    }
    header[f"layers.{number}.experts.weight_packed"] = {
        **{"dtype": "U8", "shape": [SHARD_BYTES - begin]},
        "data_offsets": [begin, SHARD_BYTES],
    }
    data = json.dumps(header).encode()
    with open(path, "wb") as file:
        file.write(len(data).to_bytes(8, "little") + data)
        file.truncate(8 + len(data) + SHARD_BYTES)
    return list(header)


@pytest.fixture
def engine(tmp_path: Path) -> EngineConfig:
    folder = tmp_path / "model"
    folder.mkdir()
    weight_map: dict[str, str] = {}
    for number in range(SHARDS):
        name = f"model-{number + 1:05}-of-{SHARDS:05}.safetensors"
        weight_map |= dict.fromkeys(shard(folder / name, number), name)
    write(folder / "model.safetensors.index.json", {"weight_map": weight_map})
    write(folder / "config.json", CONFIG)
    write(folder / "tokenizer.json", {"model": {}})
    write(folder / "tokenizer_config.json", {"chat_template": "{{ messages }}"})
    return replace(
        ENGINE,
        user="root",
        model=str(folder),
        version="0.5.23",
        tensor_parallel=CARDS,
        preflight=Preflight(mem_fraction=0.94),
    )


@pytest.fixture(autouse=True)
def driver(monkeypatch: pytest.MonkeyPatch) -> None:
    """Eight cards on two sockets, with nothing wrong."""
    good = Health(True, True, False, False, False, False, 600, 600, 16, 16, 5, 5)
    pairs = [
        Link(one, other, "NODE" if one // 4 == other // 4 else "SYS", False)
        for one in range(CARDS)
        for other in range(one + 1, CARDS)
    ]
    monkeypatch.setattr(health, "read", lambda: dict.fromkeys(range(CARDS), good))
    monkeypatch.setattr(links, "read", lambda indices: pairs)
    monkeypatch.setattr(pcie, "read", lambda bus: Seat(False, (), int(bus[9:11], 16) // 5, 131072))
    monkeypatch.setattr(oom, "kernel_log", lambda since: oom.Kernel((), ()))


def test_nothing_but_info_in_seconds_and_nothing_read_again(
    engine: EngineConfig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    paths = Paths(tmp_path / "root")
    began = time.process_time()
    found = before.findings(engine, FACTS, paths)
    assert time.process_time() - began < 5
    assert {one.level for one in found} == {"info"}, found
    said = {one.id: one.seen for one in found}
    assert set(said) == {"gpu-memory", "gpu-peers", "host-memory"}
    assert "449 GiB of memory are less than the weights (509 GiB)" in said["host-memory"]
    assert "weights 63.7" in said["gpu-memory"] and "of 95.6 GiB free" in said["gpu-memory"]
    assert "on 2 NUMA nodes" in said["gpu-peers"]
    # The gate `staged` remembers it; whoever looks now, and changes nothing, opens no shard.
    model.look(engine, paths, remember=True)
    monkeypatch.setattr(safetensors, "read", lambda path: pytest.fail(f"{path} was read again"))
    assert before.findings(engine, FACTS, paths) == found


def test_one_of_its_shards_is_a_byte_short(engine: EngineConfig, tmp_path: Path) -> None:
    path = Path(engine.model) / f"model-00007-of-{SHARDS:05}.safetensors"
    with open(path, "r+b") as file:
        file.truncate(path.stat().st_size - 1)
    found = before.findings(engine, FACTS, Paths(tmp_path / "root"))
    (wrong,) = [one for one in found if one.level == "fail"]
    assert wrong.id == "weights-corrupt" and "1 of its 8546875000 bytes" in wrong.seen
