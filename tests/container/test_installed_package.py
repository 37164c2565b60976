"""A deploy with the installed package, from the folder that sglang-init wrote, without a checkout."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest

from tests.container.conftest import HostFactory
from tests.container.deploying import filesystem, ssh_data, write_inventory
from tests.support.installed_package import installed

pytestmark = [pytest.mark.container, pytest.mark.timeout(300)]


def test_a_plan_and_a_refused_deploy(host_factory: HostFactory, tmp_path: Path) -> None:
    host = host_factory("installed")
    bin_folder = installed(tmp_path)
    fleet = tmp_path / "fleet"

    def run(*argv: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [str(bin_folder / argv[0]), *argv[1:]],
            cwd=fleet if fleet.exists() else tmp_path,
            env={"PATH": "/usr/bin:/bin", "HOME": str(tmp_path), "PYINFRA_PROGRESS": "off"},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=200,
        )

    assert run("sglang-init", "fleet").returncode == 0
    engine = {"model": {"path": "/models/tiny"}, "flags": {"device": "cpu"}}
    section = {"ssh": ssh_data(host), "engines": {"tiny": engine}}
    write_inventory(fleet / "inventory/hosts.yml", {host.ip: section})
    before = filesystem(host)

    done = run("python", "-m", "pyinfra", "inventory.py", "deploys/sglang.py", "--dry", "--json")
    assert done.returncode == 0, done.stdout + done.stderr
    plan = json.loads(done.stdout)["plan"]
    assert any(host.ip in operation["hosts_with_change"] for operation in plan), done.stdout
    assert filesystem(host) == before

    # The weights are not there: refused by the program that the wheel carried, and said why.
    done = run("python", "-m", "pyinfra", "inventory.py", "deploys/sglang.py", "-y")
    assert done.returncode == 1 and "/models/tiny" in done.stdout + done.stderr
