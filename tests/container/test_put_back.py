"""Each thing that a deploy makes on a host is lost, one at a time: the next deploy puts it back, or a
sentence says why not. All of them take minutes: `make test-hosts`. A few that are each lost in their
own way are in test_hosts_as_they_are.py."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.container.deploying import deploy, pending, ssh_data, write_inventory
from tests.hosts.host import Host
from tests.hosts.standins.install import install_into
from tests.support.standin_host import ENGINE

pytestmark = [pytest.mark.container, pytest.mark.real, pytest.mark.timeout(2400)]

# What a deploy does not make, or makes anew by itself: what the engine and the watch write while
# they run, locks, what a start leaves.
MADE = r"""
find /etc/sglangctl /usr/local/lib/sglangctl /usr/local/bin/sglangctl /opt/sglang \
  /var/lib/sglangctl /var/log/sglang /var/cache/sglang /etc/systemd/system/sglang* \
  /etc/systemd/system/multi-user.target.wants/sglang* /etc/tmpfiles.d/sglang* \
  /etc/logrotate.d/sglang* \
  \( -path '*/starts/*' -o -path '*/switches*' -o -path '*/site-packages/*' -o -path '*/bin/*' \
     -path '/opt/*' -o -name include -o -name lib64 -o -name .users -o -path '/var/log/sglang/*/*' -o -path '/var/cache/sglang/*/*' \) -prune \
  -o -printf '%p\n'
"""


@pytest.fixture(scope="module")
def host(module_host_factory: Any) -> Iterator[Host]:
    made = module_host_factory("lost", gpus=2)
    install_into(made)
    yield made


@pytest.fixture(scope="module")
def inventory(host: Host, tmp_path_factory: pytest.TempPathFactory) -> Path:
    section = {"ssh": ssh_data(host), "engines": {"chat": ENGINE}}
    return write_inventory(tmp_path_factory.mktemp("lost") / "hosts.yml", {host.ip: section})


def things(host: Host) -> list[str]:
    """All that a deploy has made, parents before what is in them."""
    found = host.exec("sh", "-c", MADE).stdout.split("\n")[:-1]
    venv = host.exec("sh", "-c", "echo /opt/sglang/venvs/*").stdout.strip()
    inside = ("", "/bin", "/bin/python", "/pyvenv.cfg", "/sglang-provision.json", "/lib")
    return sorted({*found, *(f"{venv}{one}" for one in inside)})


def test_each_thing_comes_back(
    host: Host, inventory: Path, record_property: Callable[[str, object], None]
) -> None:
    done = deploy(inventory, "-y")
    assert done.returncode == 0, done.stdout + done.stderr
    made = things(host)
    assert len(made) > 30, made
    told, left = [], {}
    for path in made:
        host.exec("rm", "-rf", "--", path)
        done = deploy(inventory, "-y")
        text = done.stdout + done.stderr
        if done.returncode != 0 and "sglangctl stop chat" in text:
            # What an engine runs from is left alone: the sentence says how it comes back.
            told.append(path)
            host.exec("sglangctl", "stop", "chat")
            done = deploy(inventory, "-y")
            text += done.stdout + done.stderr
        back = host.exec("test", "-e", path, check=False).returncode == 0
        print(f"{path}: {'back' if back else 'gone'}, exit status {done.returncode}", flush=True)
        if done.returncode != 0 or not back:
            left[path] = text[-3000:]
            deploy(inventory, "-y")
    record_property("things", len(made))
    record_property("back after a stop of the engine, as told", told)
    print("\n".join(f"== {path}\n{text}" for path, text in left.items()))
    assert list(left) == []
    assert pending(inventory) == {}
