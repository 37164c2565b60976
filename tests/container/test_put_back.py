"""Each thing that a deploy makes on a host is lost, one at a time: the next deploy puts it back, or a
sentence says why not. All of them take minutes: `make test-hosts`. A few that are each lost in their
own way are in test_hosts_as_they_are.py."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
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
     -path '/opt/*' -o -name include -o -name lib64 -o -path '/opt/*/lib/*' -o -name .users -o -path '/var/log/sglang/*/*' -o -path '/var/cache/sglang/*/*' \) -prune \
  -o -printf '%p\n'
"""


@pytest.fixture
def hosts(host_factory: Any) -> list[Host]:
    """Two, so that one can start its engine while the other is looked at."""
    made = [host_factory(f"lost{number}", gpus=2) for number in range(2)]
    for one in made:
        install_into(one)
    return made


def inventory_of(host: Host, folder: Path) -> Path:
    section = {"ssh": ssh_data(host), "engines": {"chat": ENGINE}}
    return write_inventory(folder / f"{host.name}.yml", {host.ip: section})


def things(host: Host) -> list[str]:
    """All that a deploy has made, parents before what is in them."""
    found = host.exec("sh", "-c", MADE).stdout.split("\n")[:-1]
    venv = host.exec("sh", "-c", "echo /opt/sglang/venvs/*").stdout.strip()
    inside = ("", "/bin", "/bin/python", "/pyvenv.cfg", "/sglang-provision.json", "/lib")
    return sorted({*found, *(f"{venv}{one}" for one in inside)})


def lose(host: Host, inventory: Path, path: str) -> tuple[bool, str]:
    """Delete one thing and deploy: whether a sentence had to say how it comes back; and what was
    printed where it did not come back, or the deploy failed."""
    host.exec("rm", "-rf", "--", path)
    done = deploy(inventory, "-y")
    text = done.stdout + done.stderr
    told = done.returncode != 0 and "sglangctl stop chat" in text
    if told:
        # What an engine runs from is left alone: the sentence says how it comes back.
        host.exec("sglangctl", "stop", "chat")
        done = deploy(inventory, "-y")
        text += done.stdout + done.stderr
    back = host.exec("test", "-e", path, check=False).returncode == 0
    print(f"{path}: {'back' if back else 'gone'}, exit status {done.returncode}", flush=True)
    if done.returncode == 0 and back:
        return told, ""
    deploy(inventory, "-y")
    return told, text[-3000:]


def test_each_thing_comes_back(
    hosts: list[Host], tmp_path: Path, record_property: Callable[[str, object], None]
) -> None:
    inventories = [inventory_of(host, tmp_path) for host in hosts]
    for inventory in inventories:
        done = deploy(inventory, "-y")
        assert done.returncode == 0, done.stdout + done.stderr
    made = things(hosts[0])
    assert len(made) > 30 and made == things(hosts[1]), made

    def half(number: int) -> dict[str, tuple[bool, str]]:
        return {path: lose(hosts[number], inventories[number], path) for path in made[number::2]}

    with ThreadPoolExecutor(2) as pool:
        found = {path: one for part in pool.map(half, range(2)) for path, one in part.items()}
    left = {path: text for path, (_, text) in found.items() if text}
    record_property("things", len(made))
    record_property("back after a stop of the engine, as told", [p for p in made if found[p][0]])
    print("\n".join(f"== {path}\n{text}" for path, text in left.items()))
    assert list(left) == []
    assert [pending(inventory) for inventory in inventories] == [{}, {}]
