"""How a switch ends where the host is in a bad way: nothing ran before, the old unit was never enabled, the
old engine does not die, the disk is full, memory that nobody owns. On one host, in this order."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import requests

from tests.container.deploying import deploy, ssh_data, write_inventory
from tests.hosts.host import Host
from tests.hosts.standins.install import configure_nvidia, install_into, vllm_settings

pytestmark = [pytest.mark.container, pytest.mark.timeout(300)]

UNIT, VLLM = "sglang-chat.service", "vllm-kimi.service"
LIMITS = {"sample_s": 0.5, "respawn_s": 1, "start_s": 60, "rollback_s": 60, "stop_units_s": 5}
ENGINE: dict[str, Any] = {
    "model": {"path": "/models/tiny"},
    "gpus": [0],
    "kernel": {"source": "none"},
    "replaces": [VLLM],
    "install": {"pip_arguments": ["--no-index", "--find-links=/opt/standins/wheels"]},
    "readiness": {"limits": LIMITS},
}


@pytest.fixture(scope="module")
def host(module_host_factory: Any) -> Iterator[Host]:
    made = module_host_factory("ends", gpus=1)
    install_into(made, gpus=1)
    yield made


def deployed(host: Host, folder: Path, status: int, **environment: Any) -> str:
    """What a deploy said that ended with this exit status."""
    engine = {**ENGINE, "environment": environment}
    section = {"ssh": ssh_data(host), "engines": {"chat": engine}}
    done = deploy(write_inventory(folder / "hosts.yml", {host.ip: section}), "-y")
    assert done.returncode == status, done.stdout + done.stderr
    return done.stdout + done.stderr


def show(host: Host, unit: str, name: str) -> str:
    return host.exec("systemctl", "show", "-p", name, "--value", "--", unit).stdout.strip()


def release(host: Host) -> str:
    link = host.exec("readlink", "/var/lib/sglangctl/chat/current", check=False).stdout
    return link.strip().rpartition("/")[2]


def test_memory_that_nobody_owns_stops_nothing(host: Host, tmp_path: Path) -> None:
    host.exec("tee", "/etc/default/vllm-kimi", input=vllm_settings(GPUS=1))
    host.exec("systemctl", "start", VLLM)  # and not enabled
    wait = "until fuser -s 8000/tcp && fuser -s /dev/nvidia0; do sleep 0.2; done"
    host.exec("timeout", "60", "sh", "-c", wait)
    configure_nvidia(host, gpus=1, override={"0": {"memory_mib": 60000}})
    try:
        said = deployed(host, tmp_path, 1)
    finally:
        configure_nvidia(host, gpus=1)
    assert "MiB on GPU 0 belong to no process that can be seen from here" in said
    assert show(host, VLLM, "ActiveState") == "active"
    assert release(host) == ""


@pytest.mark.real
def test_an_old_unit_that_was_never_enabled_comes_back_as_it_was(
    host: Host, tmp_path: Path
) -> None:
    said = deployed(host, tmp_path, 1, STANDIN_FAULT="disk-full")
    assert f"{VLLM} serves again" in said and "disk-full" in said
    assert show(host, VLLM, "ActiveState") == "active"
    assert show(host, VLLM, "UnitFileState") == "disabled"
    answer = requests.get(f"http://{host.ip}:8000/v1/models", timeout=10)
    assert answer.json()["data"][0]["id"] == "kimi"
    host.reboot()
    assert show(host, VLLM, "ActiveState") == "inactive", "nor does it boot"
    assert show(host, UNIT, "ActiveState") == "inactive"


@pytest.mark.real
def test_where_nothing_ran_before_a_release_that_fails_leaves_nothing(
    host: Host, tmp_path: Path
) -> None:
    host.exec("systemctl", "stop", VLLM)
    said = deployed(host, tmp_path, 1, STANDIN_FAULT="rank-died")
    assert "nothing to go back to, nothing ran before it" in said
    assert "at the next boot: neither it nor what it replaces starts" in said
    assert show(host, UNIT, "ActiveState") in ("inactive", "failed")
    assert show(host, UNIT, "UnitFileState") == "disabled"
    assert "sglang::" not in host.exec("ps", "-eo", "args").stdout


@pytest.mark.real
def test_an_old_engine_that_does_not_die_gives_way(host: Host, tmp_path: Path) -> None:
    """Its unit waits for ever; the switch ends it, and the new one serves on its GPU."""
    deployed(host, tmp_path, 0, STANDIN_STOP_HANGS="1", STANDIN_STOP_EXIT="0")
    before, main = release(host), show(host, UNIT, "MainPID")
    folder = f"/etc/systemd/system/{UNIT}.d"
    host.exec("mkdir", "-p", folder)
    host.exec("tee", f"{folder}/never.conf", input="[Service]\nTimeoutStopSec=infinity\n")
    host.exec("systemctl", "daemon-reload")
    try:
        said = deployed(host, tmp_path, 0, ROUND="2")
    finally:
        host.exec("rm", "-r", folder)
        host.exec("systemctl", "daemon-reload")
    assert "did not stop" in said and "SIGKILL" in said, said[said.find("in the way") :]
    assert release(host) != before
    assert host.exec("test", "-d", f"/proc/{main}", check=False).returncode == 1
    host.exec("sglangctl", "verify", "chat")


@pytest.mark.real
def test_a_full_disk_fails_the_new_release_and_the_old_one_serves_again(
    host: Host, tmp_path: Path
) -> None:
    before = release(host)
    said = deployed(host, tmp_path, 1, STANDIN_FAULT="disk-full", ROUND="3")
    assert f"release {before[:12]} of chat serves again" in said and "disk-full" in said
    assert release(host) == before
    host.exec("sglangctl", "verify", "chat")
