"""Ansible's side of benchmarks/converge.py: its own virtual environment, inventory and variables."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

from roles.host.managed import ManagedFile
from roles.remote import program
from roles.stages.desired import DesiredHost
from tests.hosts.host import Host
from tests.hosts.say import CACHE

CORE = "ansible-core==2.19.*"
PLAYBOOK = Path(__file__).with_name("playbook.yml")
SETTINGS = """\
[defaults]
forks = 50
gathering = explicit
interpreter_python = /usr/bin/python3
nocows = true
retry_files_enabled = false
[ssh_connection]
pipelining = true
"""
"""Everything else is Ansible's default: a connection kept for a minute too, so that all rounds but the
first begin with one. pyinfra opens its own each time."""


def program_of(folder: Path = CACHE / "ansible") -> Path:
    """ansible-playbook, installed by pip (with this machine's settings) where it is missing."""
    found = folder / "bin/ansible-playbook"
    if not found.exists():
        subprocess.run([sys.executable, "-m", "venv", str(folder)], check=True)
        pip = [str(folder / "bin/python"), "-m", "pip", "install", "--quiet"]
        subprocess.run([*pip, "--disable-pip-version-check", CORE], check=True)
    return found


def write(folder: Path, hosts: list[Host], desired: DesiredHost) -> None:
    """ansible.cfg, the inventory and the variables, for hosts that all want `desired`."""
    (folder / "ansible.cfg").write_text(SETTINGS)
    lines = ["[engines]"]
    for host in hosts:
        more = f"-o UserKnownHostsFile={host.known_hosts} -o StrictHostKeyChecking=yes"
        lines.append(
            f"{host.ip} ansible_user=root ansible_ssh_private_key_file={host.ssh_key} "
            f"ansible_ssh_common_args='{more}'"
        )
    (folder / "hosts.ini").write_text("\n".join(lines) + "\n")
    (folder / "variables.json").write_text(json.dumps(variables(folder, desired), indent=1))


def variables(folder: Path, desired: DesiredHost) -> dict[str, object]:
    """What the playbook needs; the contents of files are written below `folder`."""
    (engine,) = desired.engines
    items = [*desired.managed, *engine.managed, engine.config]
    items += [*engine.live_files.values(), engine.unit_files[engine.spec.unit]]
    folders, files = [], []
    for number, item in enumerate(items):
        one = {"path": item.path, "mode": item.mode, "owner": item.owner, "group": item.group}
        if isinstance(item, ManagedFile):
            source = folder / f"file-{number}"
            source.write_bytes(item.content)
            files.append({**one, "source": str(source)})
        else:
            folders.append(one)
    spec = engine.spec
    return {
        "program": program.path(),
        "program_link": program.LINK,
        "user": spec.user,
        "home": spec.cache,
        "folders": folders,
        "files": files,
        "venv_marker": engine.venv.marker,
        "live": spec.current,
        "release": f"releases/{engine.release.digest}",
        "unit": spec.unit,
        "health": f"http://127.0.0.1:{spec.port}/health",
    }


def command(folder: Path) -> list[str]:
    """The command line; it is run in `folder`, where ansible.cfg lies."""
    return [
        str(program_of()),
        "--inventory=hosts.ini",
        "--extra-vars=@variables.json",
        str(PLAYBOOK),
    ]
