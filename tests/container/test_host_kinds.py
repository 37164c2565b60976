"""The main job on every kind of host that the README promises: `make test-hosts`."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from sglangctl.systemd import unit_keys
from tests.container.deploying import changed, deploy, pending, ssh_data, write_inventory
from tests.hosts.host import Host
from tests.hosts.standins.install import install_into
from tests.support.standin_host import ENGINE

pytestmark = [pytest.mark.container, pytest.mark.real, pytest.mark.timeout(600)]

SUDO = {"ssh": {"user": "debian"}, "sudo": True}
KINDS = [
    ("base", {}, "0022"),
    ("base", SUDO, "0027"),
    ("debian11", {}, "0022"),
    ("debian11", SUDO, "0027"),
    ("debian13", {}, "0022"),
    ("debian13", SUDO, "0027"),
]
TOO_OLD = ["host-glibc", "host-python"]
"""What SGLang needs and Debian 11 has not: a deploy of a real engine ends there."""
WITHOUT_SYSTEMD = (
    "mkdir -p /run/sshd; ssh-keygen -q -t ed25519 -N '' -f /etc/ssh/ssh_host_ed25519_key; "
    "exec /usr/sbin/sshd -D"
)


def section(host: Host, more: dict[str, Any], **engine: Any) -> dict[str, Any]:
    """A host's part of the inventory."""
    ssh = {**ssh_data(host), **more.get("ssh", {})}
    return {**more, "ssh": ssh, "engines": {"chat": {**ENGINE, **engine}}}


def over_ssh(host: Host, user: str, command: str) -> str:
    done = subprocess.run(host.ssh("-l", user, command), capture_output=True, text=True)
    return done.stdout.strip()


@pytest.mark.parametrize(("image", "login", "umask"), KINDS)
def test_it_serves_and_there_is_nothing_more_to_do(
    host_factory: Any,
    tmp_path: Path,
    image: str,
    login: dict[str, Any],
    umask: str,
    record_property: Callable[[str, object], None],
) -> None:
    host: Host = host_factory("kind", image=image, gpus=2)
    install_into(host)
    host.exec(
        "sh",
        "-c",
        f"echo session optional pam_umask.so umask={umask} nousergroups >>/etc/pam.d/sshd",
    )
    user = login.get("ssh", {}).get("user", "root")
    assert over_ssh(host, user, "umask") == umask
    version = host.exec("systemctl", "--version").stdout.split()[1]
    record_property("systemd", version)
    record_property("python", host.exec("python3", "--version").stdout.split()[1])
    engine: dict[str, Any] = {}
    if image == "debian11":
        inventory = write_inventory(tmp_path / "hosts.yml", {host.ip: section(host, login)})
        done = deploy(inventory, "-y")
        assert done.returncode == 1
        assert "glibc is 2.31" in done.stdout + done.stderr and "3.9; needed" in done.stderr
        engine["preflight"] = {"ignore": TOO_OLD}
    for hardening in ("baseline", "strict"):
        engine["hardening"] = hardening
        inventory = write_inventory(
            tmp_path / "hosts.yml", {host.ip: section(host, login, **engine)}
        )
        done = deploy(inventory, "-y")
        text = done.stdout + done.stderr
        assert done.returncode == 0, text
        unknown = unit_keys.unknown_to(version) if hardening == "strict" else []
        assert all(key in text for key in unknown), text
        assert pending(inventory) == {}
        again = deploy(inventory, "-y", "--json")
        assert again.returncode == 0 and changed(again) == {}, again.stdout + again.stderr
        host.exec("sglangctl", "verify", "chat")
        # What systemd itself says of what is installed: only the keys that are known to be unknown.
        checked = host.exec("systemd-analyze", "verify", "sglang-chat.service", check=False).stderr
        complaints = [line for line in checked.splitlines() if "sglang" in line]
        assert [one for one in complaints if not unit_keys.is_expected(one, version)] == []
        assert len(complaints) >= len(unknown)
        exposure = host.exec("systemd-analyze", "security", "sglang-chat.service").stdout
        record_property(f"exposure of {hardening}", exposure.strip().splitlines()[-1].split()[-3])


def test_a_host_without_python_fails_with_the_package(host_factory: Any, tmp_path: Path) -> None:
    host: Host = host_factory("bare", gpus=2)
    host.exec("sh", "-c", "mv /usr/bin/python3 /usr/bin/python3.gone")
    inventory = write_inventory(tmp_path / "hosts.yml", {host.ip: section(host, {})})
    for arguments in (["--dry"], ["-y"]):
        done = deploy(inventory, *arguments)
        assert done.returncode == 1
        assert "apt-get install python3" in done.stdout + done.stderr


def test_a_host_that_systemd_does_not_run_is_named(host_factory: Any, tmp_path: Path) -> None:
    host: Host = host_factory("noinit", gpus=2, boot=["sh", "-c", WITHOUT_SYSTEMD])
    inventory = write_inventory(tmp_path / "hosts.yml", {host.ip: section(host, {})})
    for arguments in (["--dry"], ["-y"]):
        done = deploy(inventory, *arguments)
        assert done.returncode == 1
        assert "needs a host that is run by systemd" in done.stdout + done.stderr
    assert host.exec("test", "-e", "/var/lib/sglangctl", check=False).returncode == 1
