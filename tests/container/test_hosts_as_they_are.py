"""Hosts as people have them: what each lacks or does otherwise is mended, or told in a sentence."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.container.deploying import changed, deploy, pending, ssh_data, write_inventory
from tests.hosts.host import Host
from tests.hosts.standins.install import install_into
from tests.support.standin_host import ENGINE

pytestmark = [pytest.mark.container, pytest.mark.timeout(300)]


@pytest.fixture(scope="module")
def host(module_host_factory: Any) -> Iterator[Host]:
    """A host whose logins have the umask of CIS's benchmark."""
    made = module_host_factory("cis", gpus=2)
    install_into(made)
    made.exec("sh", "-c", "echo session optional pam_umask.so umask=0027 >>/etc/pam.d/sshd")
    assert made_by(made, "umask") == "0027"
    yield made


def made_by(host: Host, command: str) -> str:
    """What a command prints over ssh, as the deploy runs it."""
    return subprocess.run(host.ssh(command), capture_output=True, text=True).stdout.strip()


@pytest.fixture
def inventory(host: Host, tmp_path: Path) -> Path:
    section = {"ssh": ssh_data(host), "engines": {"chat": ENGINE}}
    return write_inventory(tmp_path / "hosts.yml", {host.ip: section})


def test_a_strict_umask_changes_nothing_of_what_is_made(host: Host, inventory: Path) -> None:
    done = deploy(inventory, "-y")
    assert done.returncode == 0, done.stdout + done.stderr
    assert pending(inventory) == {}
    closed = (
        "find /opt/sglang /usr/local/lib/sglangctl /usr/local/bin /var/lib/sglangctl/chat/releases "
        "/etc/sglangctl -name host.json -o -name engine.env -o -name engine.yaml -o "
        "! -type l ! -perm -o=r -print"
    )
    assert host.exec("sh", "-c", closed).stdout == ""


@pytest.mark.parametrize(
    ("path", "mode", "operation"),
    [
        ("/usr/local/lib/sglangctl", "0750", "Host | sglangctl"),
        ("/usr/local/lib/sglangctl/*.pyz", "0700", "Host | sglangctl"),
        ("/var/lib/sglangctl/chat/current/", "0750", "Engine | chat: release"),
        ("/var/lib/sglangctl/chat/current/nccl.env", "0600", "Switch | chat: drift"),
    ],
)
def test_what_an_earlier_version_made_under_it_is_mended(
    host: Host, inventory: Path, path: str, mode: str, operation: str
) -> None:
    before = host.exec("sh", "-c", f"stat -c %a {path}").stdout
    host.exec("sh", "-c", f"chmod {mode} {path}")
    assert operation in pending(inventory)
    done = deploy(inventory, "-y", "--json")
    assert done.returncode == 0, done.stderr
    assert operation in changed(done)
    assert host.exec("sh", "-c", f"stat -c %a {path}").stdout == before
    assert pending(inventory) == {}


def test_what_was_lost_comes_back_in_one_deploy(host: Host, inventory: Path) -> None:
    # One of each kind of thing that a deploy makes on a host.
    lost = [
        "/etc/sglangctl/host.json",
        "/etc/systemd/system/multi-user.target.wants/sglang-chat.service",
        "/etc/systemd/system/multi-user.target.wants/sglangctl-resume.service",
        "/etc/tmpfiles.d/sglang-chat.conf",
        "/opt/sglang/venvs",
        "/usr/local/bin/sglangctl",
        "/usr/local/lib/sglangctl",
        "/var/lib/sglangctl/chat/current/nccl.env",
        "/var/lib/sglangctl/chat/known-good",
        "/var/lib/sglangctl/chat/state.json",
    ]
    host.exec("rm", "-r", "--", *lost)
    done = deploy(inventory, "-y")
    assert done.returncode == 0, done.stdout + done.stderr
    host.exec("ls", "-d", "--", *lost)
    assert pending(inventory) == {}


def test_what_is_wrong_with_logins_fails_its_own_host_alone(host: Host, tmp_path: Path) -> None:
    host.exec("useradd", "--create-home", "--shell", "/bin/bash", "asked")
    host.exec("useradd", "--create-home", "--shell", "/bin/bash", "plain")
    host.exec("tee", "/etc/sudoers.d/asked", input="asked ALL=(ALL) ALL\n")
    host.exec("tee", "/root/.bashrc", input="echo hello; printf 'no end'\n")
    ssh = {**ssh_data(host), "hostname": host.ip}
    engines = {"engines": {"chat": ENGINE}}
    inventory = write_inventory(
        tmp_path / "hosts.yml",
        {
            "talks": {"ssh": ssh, **engines},
            "asked": {"ssh": {**ssh, "user": "asked"}, "sudo": True, **engines},
            "plain": {"ssh": {**ssh, "user": "plain"}, **engines},
            "debian": {"ssh": {**ssh, "user": "debian"}, "sudo": True, **engines},
        },
    )
    for arguments in (["--dry"], ["-y", "--limit", "asked", "--limit", "plain"]):
        done = deploy(inventory, *arguments)
        text = done.stdout + done.stderr
        assert done.returncode == 1, text
        assert "sudo on this host wants a password" in text
        assert "sudo: true" in text
        assert "Traceback" not in text and " line " not in text, text
    done = deploy(inventory, "-y", "--limit", "talks", "--limit", "debian", "--json")
    assert done.returncode == 0, done.stderr
    assert changed(done) == {}


@pytest.mark.real  # `make test-hosts` builds their images
def test_an_older_and_a_newer_debian_beside_each_other(host_factory: Any, tmp_path: Path) -> None:
    """The short job on them; the long one on every kind of host is test_host_kinds.py's."""
    old: Host = host_factory("older", image="debian11", gpus=2)
    new: Host = host_factory("newer", image="debian13", gpus=2)
    for made in (old, new):
        install_into(made)
    # What SGLang itself needs and Debian 11 does not have.
    ignored = {"preflight": {"ignore": ["host-glibc", "host-python"]}, "hardening": "strict"}
    inventory = write_inventory(
        tmp_path / "hosts.yml",
        {
            old.ip: {"ssh": ssh_data(old), "engines": {"chat": {**ENGINE, **ignored}}},
            new.ip: {
                "ssh": {**ssh_data(new), "user": "debian"},
                "sudo": True,
                "engines": {"chat": ENGINE},
            },
        },
    )
    done = deploy(inventory, "-y")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "does not know PrivateIPC" in done.stdout + done.stderr
    again = deploy(inventory, "-y", "--json")
    assert again.returncode == 0 and changed(again) == {}, again.stdout + again.stderr
