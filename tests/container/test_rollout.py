"""A fleet of two: the first host of the rollout alone, the other one once it is ready."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.container.deploying import deploy, pending, ssh_data, write_inventory
from tests.hosts.host import Host
from tests.hosts.standins.install import install_into

pytestmark = [pytest.mark.container, pytest.mark.timeout(300)]

ENGINE: dict[str, Any] = {
    "model": {"path": "/models/tiny"},
    "gpus": [0],
    "kernel": {"source": "none"},
    "install": {"pip_arguments": ["--no-index", "--find-links=/opt/standins/wheels"]},
    "readiness": {"limits": {"sample_s": 0.5, "respawn_s": 1, "start_s": 60}},
}


@pytest.fixture(scope="module")
def fleet(module_host_factory: Any) -> Iterator[tuple[Host, Host]]:
    """(the one that goes first, the other)."""
    made = [module_host_factory(name, gpus=1) for name in ("first", "other")]
    for host in made:
        install_into(host, gpus=1)
    yield made[0], made[1]


def inventory_of(folder: Path, fleet: tuple[Host, Host], **more: Any) -> Path:
    first, other = fleet
    engines = {"chat": {**ENGINE, **more}}
    # The one that goes first is the last in the file.
    hosts = {host.ip: {"ssh": ssh_data(host), "engines": engines} for host in (other, first)}
    return write_inventory(folder / "hosts.yml", hosts, rollout={"first": first.ip})


def started(host: Host) -> str:
    """When the engine was started, and that it serves; empty without one."""
    names = ["-pActiveState", "-pExecMainStartTimestampMonotonic"]
    shown = host.exec("systemctl", "show", "--value", *names, "--", "sglang-chat.service").stdout
    return shown if "active" in shown.split() else ""


def test_the_other_is_left_alone_until_the_first_is_ready(
    fleet: tuple[Host, Host], tmp_path: Path
) -> None:
    first, other = fleet
    failing = inventory_of(tmp_path, fleet, environment={"STANDIN_FAULT": "rank-died"})
    plan = deploy(failing, "--dry")
    assert f"begins once {first.ip} is ready" in plan.stdout + plan.stderr
    done = deploy(failing, "-y")
    said = done.stdout + done.stderr
    assert done.returncode == 1, said
    assert f"left alone, because {first.ip} goes first" in said
    assert started(other) == ""
    assert other.exec("test", "-e", "/var/lib/sglangctl/chat/state.json", check=False).returncode
    good = inventory_of(tmp_path, fleet)
    done = deploy(good, "-y")
    said = done.stdout + done.stderr
    assert done.returncode == 0, said
    said = " ".join(said.split())  # names are padded
    assert said.index(f"[{first.ip}] chat is ready") < said.index(f"[{other.ip}] started sglang-")
    assert started(first) and started(other)
    assert pending(good) == {}


def test_what_the_first_has_compiled_is_taken_over_by_the_other(
    fleet: tuple[Host, Host], tmp_path: Path
) -> None:
    first, other = fleet
    shared = inventory_of(
        tmp_path,
        fleet,
        environment={"STANDIN_JIT_ONCE_S": "8"},
        compile_cache={"share": True},
        kernel={"source": "none", "cache": str(tmp_path / "kept")},
        cutover="plain",
    )
    done = deploy(shared, "-y")
    said = " ".join((done.stdout + done.stderr).split())  # names are padded
    assert done.returncode == 0, said
    assert "compiled here in this start, kept for other hosts" in said
    assert f"taken over from {first.ip}: " in said
    assert " less" in said
    look = ["find", "/var/cache/sglang/chat/compiled", "-name", "kernel.cubin"]
    shown = [host.exec(*look, "-printf", "%P %T@ %u %m\n").stdout for host in (first, other)]
    assert shown[0].split()[:3] == shown[1].split()[:3], "path, time and owner"
    assert shown[1].split()[2] == "sglang-chat"
    # Nothing that a run brought lies where the engine's user could have written it before.
    lies = other.exec("find", "/var/cache/sglangctl/compiled", "!", "-user", "root").stdout
    assert lies == ""
    (provenance,) = (tmp_path / "kept/compiled").glob("*/provenance.json")
    assert json.loads(provenance.read_text())["warming_s"] >= 8
    assert pending(shared) == {}
    # Without the fleet's copy nothing fails, and what the host has compiled is still there.
    shutil.rmtree(tmp_path / "kept")
    (tmp_path / "kept").touch()
    again = inventory_of(
        tmp_path,
        fleet,
        environment={"STANDIN_JIT_ONCE_S": "8", "A": "again"},
        compile_cache={"share": True},
        kernel={"source": "none", "cache": str(tmp_path / "kept")},
        cutover="plain",
    )
    done = deploy(again, "-y")
    said = " ".join((done.stdout + done.stderr).split())
    assert done.returncode == 0, said
    assert "1 files were compiled on this host before" in said
    assert "not shared: " in said
    assert started(first) and started(other)


@pytest.mark.real
@pytest.mark.parametrize("option", ["--serial", "--parallel=1", "--fail-percent=0"])
def test_pyinfra_s_own_ways(fleet: tuple[Host, Host], tmp_path: Path, option: str) -> None:
    first, other = fleet
    was = started(other)
    failing = inventory_of(tmp_path, fleet, environment={"STANDIN_FAULT": "rank-died", "A": option})
    done = deploy(failing, "-y", option)
    assert done.returncode == 1, done.stdout + done.stderr
    assert started(other) == was, "it was left alone"
    good = inventory_of(tmp_path, fleet, environment={"A": option})
    done = deploy(good, "-y", option)
    assert done.returncode == 0, done.stdout + done.stderr
    assert started(first) and started(other) not in ("", was)
    assert pending(good) == {}
