"""Code of others on a host with systemd: what it can reach, and how its end is told."""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

import pytest
import uv
from pyinfra.api import StringCommand

from roles.engine import venv as engine_venv
from roles.inventory import locked
from roles.remote import program
from sglangctl.packages import uv_program
from tests.container.conftest import HostFactory
from tests.container.deploying import changed, deploy, ssh_data, write_inventory
from tests.hosts.host import Host
from tests.hosts.say import ROOT
from tests.support.wheels import wheel

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


def command_line(venv: engine_venv.Venv, monkeypatch: pytest.MonkeyPatch) -> str:
    """A deploy's own, that makes an environment."""
    lines: list[str] = []

    def step(remote: object, title: str, command: StringCommand, **options: object) -> list[str]:
        lines.append(command.get_raw_value())
        return []

    monkeypatch.setattr(engine_venv, "run_step", step)
    for name in ("say", "keep"):
        monkeypatch.setattr(engine_venv, name, lambda *words: None)
    engine_venv.build_venv(cast(Any, None), venv, False, False)
    return lines[0]


@pytest.fixture(scope="module")
def uv_there(host: Host) -> None:
    """uv where a host has it, that says with which capabilities it runs."""
    program = f"/opt/sglang/tools/uv-{uv_program.VERSION}/uv"
    host.copy_in(Path(uv.find_uv_bin()), f"{program}.real", mode=0o755)
    look = "grep CapEff /proc/self/status >/opt/sglang/capabilities"
    host.copy_in(f'#!/bin/sh\n{look}\nexec {program}.real "$@"\n'.encode(), program, mode=0o755)


BACKEND = """\
import os, zipfile
def build_wheel(folder, config_settings=None, metadata_directory=None):
    open("/srv/open/of-the-build", "w") if os.getuid() == 0 else None
    name = "sglang-0.5.23-py3-none-any.whl"
    with zipfile.ZipFile(os.path.join(folder, name), "w") as wheel:
        info = "sglang-0.5.23.dist-info"
        wheel.writestr("sglang/__init__.py", "built_by = %r\\n" % [os.getuid(), os.getgid()])
        wheel.writestr("sglang_path.pth", "import os; os.getuid() or open('/root/of-the-pth', 'w')\\n")
        wheel.writestr(info + "/METADATA", "Metadata-Version: 2.1\\nName: sglang\\nVersion: 0.5.23\\n")
        wheel.writestr(info + "/WHEEL", "Wheel-Version: 1.0\\nGenerator: x\\nRoot-Is-Purelib: true\\nTag: py3-none-any\\n")
        wheel.writestr(info + "/RECORD", "")
    return name
"""
PROJECT = """\
[build-system]
requires = []
build-backend = "backend"
backend-path = ["."]
[project]
name = "sglang"
version = "0.5.23"
"""


def test_a_source_package_is_built_and_installed_without_root(
    host: Host, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A deploy's own command line, with a source package and a .pth file that look who they are."""
    host.copy_in(BACKEND.encode(), "/srv/sglang-0.5.23/backend.py")
    host.copy_in(PROJECT.encode(), "/srv/sglang-0.5.23/pyproject.toml")
    host.copy_in(
        b"Metadata-Version: 2.1\nName: sglang\nVersion: 0.5.23\n", "/srv/sglang-0.5.23/PKG-INFO"
    )
    host.exec("tar", "-C", "/srv", "-czf", "/srv/sglang-0.5.23.tar.gz", "sglang-0.5.23")
    venv = engine_venv.Venv(
        "/opt/sglang/venvs/0123456789abcdef",
        "python3",
        ("sglang==0.5.23",),
        ("--no-index", "--find-links=/srv"),
        user="nobody",
    )
    line = command_line(venv, monkeypatch)
    for _ in range(2):  # the second time the user is there
        done = host.exec("sh", "-c", line, check=False, timeout=200)
        assert done.returncode == 0, done.stdout + done.stderr
    marker = json.loads(host.exec("cat", venv.marker).stdout)
    assert marker["packages"] == {"sglang": "0.5.23"}
    module = f"{venv.path}/lib/python3.11/site-packages/sglang/__init__.py"
    uid = host.exec("id", "-u", "sglang-build").stdout.strip()
    assert uid in host.exec("cat", module).stdout
    for path in ("/srv/open/of-the-build", "/root/of-the-pth"):
        assert host.exec("test", "-e", path, check=False).returncode != 0, path
    others = ["find", venv.path, "(", "!", "-user", "root", "-o", "-perm", "/022", ")"]
    assert host.exec(*others, "!", "-type", "l").stdout == ""
    host.exec("test", "-s", "/var/lib/sglangctl/.users/sglang-build")


@pytest.mark.usefixtures("uv_there")
def test_uv_installs_a_lock_with_hard_links_and_without_capabilities(
    host: Host, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Each folder that a sandbox can write to is a mount, and a hard link leads out of none."""
    content = {
        "sglang/__init__.py": "A = 1\n",
        "x.pth": "import os; open('/opt/sglang/ran', 'w')\n",
    }
    file = wheel(tmp_path, "sglang", "0.5.23", content=content)
    host.copy_in(file.read_bytes(), f"/srv/locked/{file.name}", mode=0o644)
    digest = hashlib.sha256(file.read_bytes()).hexdigest()
    pins = ("sglang==0.5.23",)
    text = locked.written(pins, f"sglang==0.5.23 \\\n    --hash=sha256:{digest}\n")
    lock = locked.Locked(pins, text)
    inodes = []
    for name in ("0", "1"):
        venv = engine_venv.Venv(
            f"/opt/sglang/venvs/{name * 16}",
            "python3",
            pins,
            ("--no-index", "--find-links=/srv/locked"),
            locked=lock,
        )
        host.copy_in(text, venv.requirements, mode=0o644)
        done = host.exec("sh", "-c", command_line(venv, monkeypatch), check=False, timeout=200)
        assert done.returncode == 0, done.stdout + done.stderr
        assert "uv is not used" not in done.stdout, done.stdout
        site = f"{venv.path}/lib/python3.11/site-packages"
        bytecode = f"{site}/sglang/__pycache__/__init__.cpython-311.pyc"
        inodes.append(host.exec("stat", "-c", "%i", f"{site}/sglang/__init__.py", bytecode).stdout)
    assert inodes[0] == inodes[1]
    assert host.exec("cat", "/opt/sglang/capabilities").stdout.split()[1] == "0" * 16
    assert host.exec("test", "-e", "/opt/sglang/ran", check=False).returncode != 0
    assert host.exec("stat", "-c", "%a", "/opt/sglang/cache").stdout == "700\n"
    loose = ["(", "!", "-user", "root", "-o", "-perm", "/022", ")"]
    found = ["find", "/opt/sglang/venvs", "/opt/sglang/tools", "!", "-type", "l", *loose]
    assert host.exec(*found).stdout == ""


ONLY_PREPARED = """\
from roles.stages import desired_host, prepare_engines, prepare_host
if host := desired_host("sglang"):
    prepare_host(host)
    prepare_engines(host)
"""


@pytest.fixture
def index() -> Iterator[Path]:
    """A folder that is on both machines, and not in /tmp, which is another one in a sandbox."""
    with tempfile.TemporaryDirectory(dir="/srv", prefix="index-") as made:
        Path(made).chmod(0o755)
        yield Path(made)


@pytest.mark.usefixtures("uv_there")
def test_a_deploy_makes_a_lock_keeps_it_and_restarts_nothing_by_it(
    host: Host, index: Path, tmp_path: Path
) -> None:
    host.exec("rm", "-f", "/etc/pip.conf")  # with an index of its own there is none
    wheel(index, "sglang", "0.5.23", "torch", content={"sglang/__init__.py": ""})
    wheel(index, "torch", "2.14.0")
    host.copy_in(index, str(index))
    script = tmp_path / "prepared.py"
    script.write_text(ONLY_PREPARED)
    engine = {
        "model": {"path": "/models/tiny"},
        "kernel": {"source": "none"},
        "install": {"find_links": [str(index)], "pip_arguments": ["--no-index"]},
    }
    section = {"ssh": ssh_data(host), "engines": {"chat": engine}}
    inventory = write_inventory(tmp_path / "hosts.yml", {host.ip: section})
    name = os.path.relpath(script.with_suffix(""), ROOT / "deploys")
    lock = locked.path_of("chat", tmp_path)

    done = deploy(inventory, "-y", script=name)
    said = done.stdout + done.stderr
    assert done.returncode == 0 and f"2 packages are locked in {lock}" in said, said
    assert "no lock yet: this deploy makes one" in said
    assert "torch==2.14.0" in locked.parse(lock.read_bytes())[1]
    assert "uv is not used" not in said

    done = deploy(inventory, "-y", "--json", script=name)
    assert done.returncode == 0 and changed(done) == {}, done.stdout
    wheel(index, "torch", "2.14.1")
    host.copy_in(index, str(index))
    host.exec("sh", "-c", "rm -r /opt/sglang/venvs/*")
    done = deploy(inventory, "-y", script=name)
    assert done.returncode == 0, done.stdout + done.stderr
    (info,) = host.exec("sh", "-c", "ls -d /opt/sglang/venvs/*/lib/*/*/torch-*").stdout.split()
    assert info.endswith("torch-2.14.0.dist-info")
