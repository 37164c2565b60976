"""The container host itself: it boots, is reached as a server is, and comes back after a reboot."""

from __future__ import annotations

import re
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.hosts.host import Host, Mount

pytestmark = pytest.mark.container


@pytest.fixture(scope="module")
def host(module_host_factory) -> Host:
    return module_host_factory("host", gpus=2)


def boot_id(host: Host) -> str:
    return host.exec("cat", "/proc/sys/kernel/random/boot_id").stdout.strip()


def test_systemd_runs_as_pid_1_and_no_unit_has_failed(host: Host) -> None:
    assert host.exec("cat", "/proc/1/comm").stdout.strip() == "systemd"
    deadline = time.monotonic() + 30
    while host.exec("systemctl", "is-system-running", check=False).stdout.strip() == "starting":
        assert time.monotonic() < deadline
        time.sleep(0.2)
    assert host.exec("systemctl", "is-system-running").stdout.strip() == "running"


def test_ssh_with_strict_host_key_checking(host: Host) -> None:
    done = subprocess.run(host.ssh("uname", "-n"), capture_output=True, text=True, timeout=30)
    assert (done.returncode, done.stdout.strip()) == (0, host.name), done.stderr


def test_ssh_as_an_ordinary_user_with_sudo(host: Host) -> None:
    argv = [*host.ssh()[:-1], "-ldebian", host.name, "id -un; sudo id -un"]
    done = subprocess.run(argv, capture_output=True, text=True, timeout=30)
    assert done.stdout.split() == ["debian", "root"], done.stderr


def test_a_gpu_device_can_be_held_open(host: Host) -> None:
    listing = host.exec("sh", "-c", "ls /dev/nvidia*").stdout.split()
    assert listing == ["/dev/nvidia-uvm", "/dev/nvidia0", "/dev/nvidia1", "/dev/nvidiactl"]
    held = host.exec("sh", "-c", "exec 9<>/dev/nvidia1; readlink /proc/$$/fd/9")
    assert held.stdout.strip() == "/dev/nvidia1"


def test_pyinfra_reaches_it_by_its_docker_connector(host: Host, tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "pyinfra", f"@docker/{host.name}", "exec", "--", "hostname"],
        capture_output=True,
        text=True,
        timeout=60,
        cwd=tmp_path,
        stdin=subprocess.DEVNULL,
    )
    assert done.returncode == 0, done.stderr
    assert host.name in done.stdout + done.stderr


def test_pip_in_a_venv_of_the_host_uses_this_machines_indexes(host: Host) -> None:
    host.exec("python3", "-m", "venv", "/root/venv")
    done = host.exec("/root/venv/bin/pip", "download", "--no-deps", "-d", "/tmp", "six==1.17.0")
    assert "six-1.17.0" in done.stdout


def test_copy_in_of_bytes_a_file_and_a_folder(host: Host, tmp_path: Path) -> None:
    (tmp_path / "folder/inner").mkdir(parents=True)
    (tmp_path / "folder/inner/script").write_text("#!/bin/sh\necho ran\n")
    (tmp_path / "folder/inner/script").chmod(0o755)
    host.copy_in(tmp_path / "folder", "/opt/copied")
    assert host.exec("/opt/copied/inner/script").stdout == "ran\n"
    host.copy_in(b"secret", "/run/copied/secret", mode=0o640, owner="root:debian")
    shown = host.exec("stat", "-c", "%a %U %G %s", "/run/copied/secret").stdout.split()
    assert shown == ["640", "root", "debian", "6"]


def test_reboot_kills_everything_and_keeps_files_and_units(host: Host) -> None:
    host.exec("sh", "-c", "echo kept > /root/kept; sync; touch /run/gone")
    host.copy_in(
        b"[Service]\nExecStart=sleep infinity\n[Install]\nWantedBy=multi-user.target\n",
        "/etc/systemd/system/stays.service",
    )
    host.exec("systemctl", "enable", "--now", "stays.service")
    before, address = boot_id(host), host.ip
    host.reboot()
    after = boot_id(host)
    assert re.fullmatch(r"[0-9a-f-]{36}", after) and after != before
    assert host.ip == address
    assert host.exec("cat", "/root/kept").stdout == "kept\n"
    assert host.exec("test", "-e", "/run/gone", check=False).returncode == 1
    assert host.exec("test", "-c", "/dev/nvidia1", check=False).returncode == 0
    deadline = time.monotonic() + 30
    while host.exec("systemctl", "is-active", "stays", check=False).returncode != 0:
        assert time.monotonic() < deadline
        time.sleep(0.2)
    host.kill()
    found = Host.find(host.name)  # as `make demo` does after this machine was switched off
    assert found is not None and boot_id(found) not in (before, after)
    # The host's key is the same: a person's known_hosts still fits.
    assert subprocess.run(host.ssh("true"), timeout=30).returncode == 0


def test_unified_cgroup_layout_on_any_machine(host_factory) -> None:
    host = host_factory("unified", unified_cgroup=True)
    unit = host.exec("systemctl", "show", "--value", "-p", "ControlGroup", "ssh").stdout.strip()
    assert unit == "/system.slice/ssh.service"
    processes = host.exec("cat", f"/sys/fs/cgroup{unit}/cgroup.procs").stdout.split()
    assert host.exec("cat", f"/proc/{processes[0]}/comm").stdout.strip() == "sshd"
    host.reboot()
    assert host.exec("stat", "-fc", "%T", "/sys/fs/cgroup").stdout.strip() == "cgroup2fs"


def test_memory_limit_and_mounts(host_factory, tmp_path: Path) -> None:
    (tmp_path / "given").write_text("from outside")
    host = host_factory("small", memory="200m", mounts=[Mount(tmp_path, "/given")])
    assert host.exec("cat", "/given/given").stdout == "from outside"
    assert host.exec("touch", "/given/new", check=False).returncode != 0
    done = host.exec("python3", "-c", "b = bytearray(400_000_000); print(len(b))", check=False)
    assert done.returncode == 137, done
    assert host.exec("systemctl", "is-active", "ssh").stdout.strip() == "active"


def test_a_host_that_is_not_there_is_not_found() -> None:
    assert Host.find("sglang-no-such-host") is None


def test_removing_leaves_no_container_network_or_key(host_factory) -> None:
    host = host_factory("gone")
    host.remove()
    for kind in ("container", "network"):
        argv = ["docker", kind, "inspect", host.name]
        assert subprocess.run(argv, capture_output=True, timeout=30).returncode == 1
    assert not host.ssh_config.exists()
