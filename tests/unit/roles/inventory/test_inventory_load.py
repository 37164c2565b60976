"""Inventories: good ones become specs, bad ones say everything that is wrong, host by host."""

from __future__ import annotations

import textwrap
from pathlib import Path

import pytest

from roles.inventory import InventoryError, load_inventory
from roles.inventory.model import HostEntry, Inventory

INVENTORY = Path(__file__).parents[4] / "inventory"


@pytest.fixture
def load(tmp_path: Path):
    def load_text(text: str, **environ: str) -> Inventory:
        path = tmp_path / "hosts.yml"
        path.write_text(textwrap.dedent(text), encoding="utf-8")
        return load_inventory(path, environ)

    return load_text


def engine_errors(load, body: str, **environ: str) -> list[str]:
    """What is wrong with an engine whose YAML is `body`; short lines, without the file."""
    text = "hosts:\n  h:\n    engines:\n      e:\n        model: {path: /m}\n"
    inventory = load(text + textwrap.indent(textwrap.dedent(body), " " * 8), **environ)
    return [line.split(": ", 1)[1] for line in inventory.hosts[0].errors]


def only(inventory: Inventory) -> HostEntry:
    (entry,) = inventory.hosts
    return entry


def test_the_minimal_example_is_enough() -> None:
    text = (INVENTORY / "minimal.example.yml").read_text()
    assert len(text.splitlines()) <= 8
    entry = only(load_inventory(INVENTORY / "minimal.example.yml"))
    assert entry.errors == ()
    assert entry.data == {"ssh_user": "root"}
    (engine,) = entry.spec.engines
    assert (engine.name, engine.version, engine.port) == ("chat", "0.5.23", 30000)
    assert engine.listen == "127.0.0.1"
    assert engine.model.served_name == "qwen3-8b"
    assert engine.install.packages == ("sglang==0.5.23",)
    assert engine.nccl.environment == {}
    assert engine.drafter is None


def test_the_kimi_example_is_the_seed_case() -> None:
    entry = only(load_inventory(INVENTORY / "kimi-8x-rtx-pro-6000.example.yml"))
    assert entry.errors == ()
    (engine,) = entry.spec.engines
    assert engine.model.path == "/shared/kimi-k2.5-int4"
    assert engine.tensor_parallel == 8
    assert engine.port == 8000
    assert engine.replaces == ("vllm-kimi.service",)
    drafter = engine.drafter
    assert drafter is not None
    assert (drafter.path, drafter.algorithm) == ("/data/eagle3/aq-medai-k2-drafter", "EAGLE3")
    assert (drafter.steps, drafter.topk, drafter.draft_tokens) == (3, 1, 4)
    assert engine.flags == {
        "mem-fraction-static": 0.85,
        "attention-backend": "flashinfer",
        "trust-remote-code": True,
        "disable-custom-all-reduce": True,
    }
    assert engine.nccl.environment == {
        "NCCL_PROTO": "LL",
        "NCCL_ALGO": "Ring",
        "NCCL_P2P_LEVEL": "SYS",
        "NCCL_MAX_NCHANNELS": "16",
        "NCCL_BUFFSIZE": "16777216",
        "NCCL_NTHREADS": "512",
    }


def test_a_wrong_host_fails_alone(load) -> None:
    inventory = load(
        """
        hosts:
          a: {engines: {e: {model: {path: /m}}}}
          b: {engines: {e: {model: {path: /m}, prot: 8000}}}
          c: {engines: {e: {model: {path: /m}}}}
        """
    )
    assert [bool(entry.errors) for entry in inventory.hosts] == [False, True, False]
    assert [entry.spec is None for entry in inventory.hosts] == [False, True, False]
    (error,) = inventory.hosts[1].errors
    assert "hosts.b.engines.e.prot: found an unknown key; allowed: one of acceptance, " in error
    assert error.endswith('did you mean "port"?')
    assert "hosts.yml:4: " in error


def test_no_usable_file_is_fatal(load, tmp_path: Path) -> None:
    with pytest.raises(InventoryError, match=r"nothing\.yml does not exist"):
        load_inventory(tmp_path / "nothing.yml")
    for text, message in (
        ("", "an empty file"),
        ("- a\n", "no mapping"),
        ("hosts: {}\n", "at least one host"),
        ("engines: {}\n", "at least one host"),
        ("hosts: [a]\n", "at least one host"),
    ):
        with pytest.raises(InventoryError, match=message):
            load(text)


@pytest.mark.parametrize("port", ["0", "65536", "-1", "8000.0", "'8000'", "true", ""])
def test_a_port_outside_its_range(load, port: str) -> None:
    (error,) = engine_errors(load, f"port: {port}")
    assert "hosts.h.engines.e.port: found " in error
    assert "a whole number from 1 to 65535" in error
