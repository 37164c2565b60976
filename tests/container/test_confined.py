"""Code of others on a host with systemd: what it can reach, and how its end is told."""

from __future__ import annotations

import subprocess

import pytest

from roles.remote import program
from tests.container.conftest import HostFactory
from tests.hosts.host import Host

pytestmark = [pytest.mark.container, pytest.mark.timeout(300)]


@pytest.fixture(scope="module")
def host(module_host_factory: HostFactory) -> Host:
    host = module_host_factory("confined")
    host.copy_in(program.archive(), program.path(), mode=0o755)
    host.exec("mkdir", "-m", "0777", "/srv/open", "/srv/mine")
    return host


def confine(host: Host, script: str, *options: str) -> subprocess.CompletedProcess[str]:
    argv = ["python3", "-I", "-S", program.path(), "confine", "--user=nobody", *options]
    return host.exec(*argv, "--", "sh", "-c", script, check=False)


def test_it_reaches_what_its_user_may_and_the_sandbox_leaves(host: Host) -> None:
    script = (
        "id -un; grep -E 'NoNewPrivs|CapBnd|Seccomp:' /proc/self/status; tr '\\0' ' ' </proc/1/environ;"
        "ls /tmp; touch /srv/mine/yes; touch /srv/open/no; touch ~/home; unshare -U true; echo end"
    )
    host.exec("touch", "/tmp/of-others")
    done = confine(host, script, "--writable=/srv/mine")
    assert done.stdout.startswith("nobody\n") and done.stdout.endswith("end\n")
    assert "NoNewPrivs:\t1" in done.stdout and "CapBnd:\t0000000000000000" in done.stdout
    assert "Seccomp:\t2" in done.stdout and "of-others" not in done.stdout
    host.exec("test", "-e", "/srv/mine/yes")
    assert host.exec("test", "-e", "/srv/open/no", check=False).returncode != 0
    assert "Read-only file system" in done.stderr and "unshare" in done.stderr


def test_statuses_signals_and_what_it_leaves_behind(host: Host) -> None:
    assert confine(host, "exit 3").returncode == 3
    assert confine(host, "kill -BUS $$").returncode == 135
    assert confine(host, "setsid tail -f /dev/null & sleep 1000", "--limit=1").returncode == 124
    assert confine(host, "setsid tail -f /dev/null >/dev/null 2>&1 & exit 0").returncode == 0
    host.exec("timeout", "30", "sh", "-c", "while pgrep -x tail; do sleep 0.2; done")
    units = host.exec("systemctl", "list-units", "--all", "--plain", "sglangctl-confined*").stdout
    assert ".service" not in units
