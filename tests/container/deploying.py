"""Running our own deploys against container hosts, as a user does, and looking at what happened."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

from tests.hosts.host import Host
from tests.hosts.say import ROOT

# Not looked at: what is not a disk, and logs of our own logins.
FILESYSTEM = r"""
cd / && find . -xdev \( -path ./proc -o -path ./sys -o -path ./run -o -path ./dev \
  -o -path ./var/log/journal -o -path ./var/log/wtmp -o -path ./var/log/lastlog \
  -o -path ./var/lib/systemd/timers \) -prune -o -print0 > /run/paths
tr '\0' '\n' < /run/paths | wc -l
xargs -0 stat --format '%n %F %a %U %G %Y' < /run/paths
find . -xdev \( -path ./proc -o -path ./sys -o -path ./run -o -path ./dev \
  -o -path ./var/log/journal -o -path ./var/log/wtmp -o -path ./var/log/lastlog \
  -o -path ./var/lib/systemd/timers \) -prune -o -type f -print0 | xargs -0 sha256sum
"""


def ssh_data(host: Host) -> dict[str, Any]:
    """The `ssh` section of an inventory for a container host."""
    return {
        "user": "root",
        "key": str(host.ssh_key),
        "known_hosts": str(host.known_hosts),
    }


def write_inventory(path: Path, hosts: Mapping[str, Any], **top: Any) -> Path:
    """An inventory file with these hosts ({address: section})."""
    path.write_text(yaml.safe_dump({**top, "hosts": dict(hosts)}, sort_keys=False))
    return path


def deploy(
    inventory: Path, *arguments: str, script: str = "sglang", timeout: float = 900.0
) -> subprocess.CompletedProcess[str]:
    """`pyinfra inventory.py deploys/SCRIPT.py ARGUMENTS`; stdout and stderr as text."""
    return subprocess.run(
        [sys.executable, "-m", "pyinfra", "inventory.py", f"deploys/{script}.py", *arguments],
        cwd=ROOT,
        env={**os.environ, "SGLANG_INVENTORY": str(inventory), "PYINFRA_PROGRESS": "off"},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=timeout,
    )


def pending(inventory: Path) -> dict[str, list[str]]:
    """The dry plan: {operation: hosts that it would change}."""
    done = deploy(inventory, "--dry", "--json")
    assert done.returncode == 0, done.stdout + done.stderr
    return {
        operation["name"]: operation["hosts_with_change"]
        for operation in json.loads(done.stdout)["plan"]
        if operation["hosts_with_change"]
    }


def changed(done: subprocess.CompletedProcess[str]) -> dict[str, list[str]]:
    """{operation: hosts that it changed} of a run with `-y --json`."""
    operations = json.loads(done.stdout)["results"]["operations"]
    return {
        operation["name"]: operation["success"] for operation in operations if operation["success"]
    }


def filesystem(host: Host) -> list[str]:
    """Of every file: kind, rights, owner, time, and of its content the sha256; sorted lines."""
    # What the first boot still writes is no change of a deploy's.
    host.exec("timeout", "15", "systemctl", "is-system-running", "--wait", check=False)
    found = sorted(host.exec("sh", "-c", FILESYSTEM, timeout=300).stdout.splitlines())
    # Where a probe asks a Python, systemd makes a private /tmp for it and takes it away again.
    return [
        line for line in found if not line.startswith(("./tmp directory", "./var/tmp directory"))
    ]
