"""All-reduces by the real torch over gloo, as the engine's user in a unit of its own."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest

from roles.remote import program
from sglangctl.state.release import FILES
from tests.container.conftest import HostFactory
from tests.container.deploying import deploy, ssh_data, write_inventory
from tests.hosts.host import Host
from tests.support import faulty_torch

pytestmark = [pytest.mark.container, pytest.mark.timeout(300)]

VENV = "/opt/sglang/venvs/x"
STATE = "/var/lib/sglangctl/tiny"
RELEASE = f"{STATE}/releases/0123456789ab"
ENGINE: dict[str, Any] = {
    **{"v": 1, "name": "tiny", "unit": "sglang-tiny.service", "user": "nobody", "port": 30000},
    **{"listen": "127.0.0.1", "model": "/models/tiny-qwen3", "served_name": "tiny"},
    **{"tensor_parallel": 2, "preflight": {"device": "cpu"}},
}
FAULTY = f"{VENV}/lib/python3.11/site-packages/torch.py"


SPEC: dict[str, Any] = {
    **{"model": {"path": "/models/tiny-qwen3"}, "user": "nobody", "tensor_parallel": 2},
    **{"flags": {"device": "cpu"}, "install": {"system_site_packages": True}},
}
"""The same engine in an inventory."""


@pytest.fixture(scope="module")
def host(module_host_factory: HostFactory) -> Host:
    host = module_host_factory("engine", image="engine")
    host.copy_in(program.archive(), program.path(), mode=0o755)
    host.copy_in(json.dumps(ENGINE).encode(), "/etc/sglangctl/engines/tiny.json")
    for name in FILES:
        host.copy_in(b"", f"{RELEASE}/{name}")
    host.copy_in(json.dumps({"venv": VENV}).encode(), f"{RELEASE}/manifest.json")
    host.exec("ln", "-s", RELEASE, f"{STATE}/current")
    host.exec("ln", "-s", program.path(), program.LINK)
    host.exec("python3", "-m", "venv", "--without-pip", "--system-site-packages", VENV)
    return host


def collective(host: Host, *options: str) -> subprocess.CompletedProcess[str]:
    argv = ["python3", "-I", "-S", program.path(), "collective", "tiny", *options]
    return host.exec(*argv, check=False, timeout=280)


def inventory_of(host: Host, folder: Path, **changes: Any) -> Path:
    section = {"ssh": ssh_data(host), "engines": {"tiny": {**SPEC, **changes}}}
    return write_inventory(folder / "hosts.yml", {host.ip: section})


def planned_with_auto(host: Host, folder: Path) -> str:
    """What a plan says of an engine with `nccl.profile: auto`."""
    return deploy(inventory_of(host, folder, nccl={"profile": "auto"}), "--dry").stderr


def faulty(host: Host, fault: str, *options: str) -> subprocess.CompletedProcess[str]:
    """With a torch whose rank 1 does wrong."""
    host.copy_in(fault.encode(), faulty_torch.FAULT)
    host.copy_in(faulty_torch.SOURCE.encode(), FAULTY)
    try:
        return collective(host, *options)
    finally:
        host.exec("rm", FAULTY)


def nothing_is_left(host: Host) -> None:
    units = host.exec("systemctl", "list-units", "--all", "--plain", "sglangctl-coll*").stdout
    assert ".service" not in units
    assert host.exec("pgrep", "-u", "nobody", check=False).stdout == ""


def test_a_deploy_of_its_own_measures_and_keeps_what_the_next_plan_chooses_by(
    host: Host, tmp_path: Path
) -> None:
    done = deploy(inventory_of(host, tmp_path), "-y", script="collective")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "tiny: right: 2 ranks: every sum is right" in done.stderr, done.stderr
    (found,) = json.loads(host.exec("cat", f"{STATE}/collective.json").stdout)["collective"]
    assert (found["outcome"], found["device"], found["key"]["nccl"]) == ("right", "cpu", None)
    assert found["torch"].startswith("2.13")
    assert [arm["name"] for arm in found["arms"]] == ["configured", "no-p2p"]
    (world,) = found["arms"][0]["worlds"]
    assert [one["bytes"] for one in world["sizes"]][::12] == [4, 64 << 20]
    assert all(one["busbw_gbps"] == one["algbw_gbps"] > 0 for one in world["sizes"])
    assert "right on 20" in collective(host, "--show").stdout
    nothing_is_left(host)
    assert "tiny: nccl.profile auto: none: right" in planned_with_auto(host, tmp_path)


def test_a_rank_that_waits_for_ever(host: Host) -> None:
    done = faulty(host, "stop", "--limit=6")
    assert done.returncode == 4, done.stdout + done.stderr
    assert "rank 0 was past 1024 bytes; rank 1 was past 1024 bytes" in done.stdout
    nothing_is_left(host)


@pytest.mark.parametrize(
    ("fault", "limit_s", "status", "outcome", "words"),
    [
        ("wrong", 150, 1, "wrong", "were wrong"),
        # The limit is that of the arm that is right, too, on a busy machine.
        pytest.param("stop", 60, 4, "hung", "hung", marks=pytest.mark.real),
    ],
)
def test_where_peer_to_peer_fails_the_next_plan_chooses_safe(
    host: Host, tmp_path: Path, fault: str, limit_s: int, status: int, outcome: str, words: str
) -> None:
    """gloo has no such copies: a rank does wrong unless NCCL_P2P_DISABLE is 1."""
    done = faulty(host, f"{fault} peers", f"--limit={limit_s}", "--json")
    assert done.returncode == status, done.stdout + done.stderr
    said = json.loads(done.stdout)["collective"]
    found = [(arm["name"], arm["outcome"]) for arm in said["arms"]]
    assert found == [("configured", outcome), ("no-p2p", "right")], said
    if fault == "wrong":
        assert "rank 1: 1 of 1024 sums are wrong at 4096 bytes" in said["arms"][0]["sentence"]
    nothing_is_left(host)
    planned = planned_with_auto(host, tmp_path)
    assert (
        f"tiny: nccl.profile auto: safe: with peer-to-peer all-reduces {words}, without it every sum "
        "was right" in planned
    ), planned


def test_an_environment_without_torch(host: Host) -> None:
    host.copy_in(b"raise ImportError('libcudart.so.13: cannot open shared object file')", FAULTY)
    try:
        done = collective(host)
    finally:
        host.exec("rm", FAULTY)
    assert done.returncode == 2, done.stdout + done.stderr
    assert "importing torch failed: ImportError: libcudart.so.13" in done.stdout
    nothing_is_left(host)
