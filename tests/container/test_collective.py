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


def nothing_is_left(host: Host) -> None:
    units = host.exec("systemctl", "list-units", "--all", "--plain", "sglangctl-coll*").stdout
    assert ".service" not in units
    assert host.exec("pgrep", "-u", "nobody", check=False).stdout == ""


def test_a_deploy_of_its_own_measures_and_keeps_what_the_next_plan_chooses_by(
    host: Host, tmp_path: Path
) -> None:
    engine = {
        **{"model": {"path": "/models/tiny-qwen3"}, "user": "nobody", "tensor_parallel": 2},
        **{"flags": {"device": "cpu"}, "install": {"system_site_packages": True}},
    }
    section = {"ssh": ssh_data(host), "engines": {"tiny": engine}}
    inventory = write_inventory(tmp_path / "hosts.yml", {host.ip: section})
    done = deploy(inventory, "-y", script="collective")
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
    engine["nccl"] = {"profile": "auto"}
    planned = deploy(write_inventory(inventory, {host.ip: section}), "--dry")
    assert "tiny: nccl.profile auto: none: right" in planned.stderr, planned.stderr


@pytest.mark.parametrize(
    ("fault", "status", "words"),
    [
        ("wrong", 1, "tiny: wrong: 2 ranks: rank 1: 1 of 1024 sums are wrong at 4096 bytes"),
        ("stop", 4, "rank 0 was past 1024 bytes; rank 1 was past 1024 bytes"),
    ],
)
def test_a_rank_that_does_wrong(host: Host, fault: str, status: int, words: str) -> None:
    host.copy_in(fault.encode(), faulty_torch.FAULT)
    host.copy_in(faulty_torch.SOURCE.encode(), FAULTY)
    try:
        done = collective(host, "--limit=6")
    finally:
        host.exec("rm", FAULTY)
    assert done.returncode == status, done.stdout + done.stderr
    assert words in done.stdout
    nothing_is_left(host)


def test_an_environment_without_torch(host: Host) -> None:
    host.copy_in(b"raise ImportError('libcudart.so.13: cannot open shared object file')", FAULTY)
    try:
        done = collective(host)
    finally:
        host.exec("rm", FAULTY)
    assert done.returncode == 2, done.stdout + done.stderr
    assert "importing torch failed: ImportError: libcudart.so.13" in done.stdout
    nothing_is_left(host)
