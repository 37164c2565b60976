"""Findings of what this machine really has: a full disk, a listener, a file system without inodes."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from sglangctl import cli
from tests.support.safetensors_files import shards
from tests.support.tools import leave_out

CHECKOUT = Path(__file__).parents[4]
LOOK = """\
import json, sys
from sglangctl.preflight import host
from sglangctl.probe import machine
from tests.support.engine_config import ENGINE
known = {"/opt/sglang/venvs": machine.disk(sys.argv[1])}
print(json.dumps([one.to_json() for one in host.disks(ENGINE, known)]))
"""

LISTEN = """\
import socket, sys
own = socket.create_server(("127.0.0.1", 0))
beside = socket.create_server(("::1", 0), family=socket.AF_INET6)
print(own.getsockname()[1], beside.getsockname()[1], flush=True)
sys.stdin.read()
"""


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root: it mounts")
@pytest.mark.parametrize(
    ("options", "level", "said"),
    [
        ("size=1m", "fail", "MiB are free"),
        ("size=600m", "warn", "0.6 GiB are free"),
        ("size=600m,nr_inodes=1", "fail", "no inode is free"),
        ("size=600m,ro", "fail", "read-only"),
    ],
)
def test_a_small_file_system(tmp_path: Path, options: str, level: str, said: str) -> None:
    """A tmpfs in a mount namespace of its own."""
    script = f'mount -t tmpfs -o {options} none "$1" && exec "$2" -c "$3" "$1/further/down"'
    argv = ["unshare", "--mount", "sh", "-c", script, "sh", tmp_path, sys.executable, LOOK]
    done = subprocess.run(argv, cwd=CHECKOUT, capture_output=True, text=True, check=False)
    if "unshare" in done.stderr or "mount" in done.stderr:
        leave_out(f"no mounts here: {done.stderr}")
    (found,) = json.loads(done.stdout)
    assert (found["id"], found["level"]) == ("disk-full", level), done.stderr
    assert said in found["seen"]


def test_a_listener(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any) -> None:
    """On the engine's port, and on one that it derives."""
    shards(tmp_path / "model")
    monkeypatch.setenv("SGLANGCTL_ROOT", str(tmp_path / "root"))
    listener = subprocess.Popen(
        [sys.executable, "-c", LISTEN], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    with listener:
        assert listener.stdout is not None
        own, beside = map(int, listener.stdout.readline().split())
        document = {
            **{"v": 1, "name": "tiny", "unit": "sglang-tiny.service", "user": "root"},
            **{"listen": "127.0.0.1", "served_name": "tiny", "port": own},
            "model": str(tmp_path / "model"),
            "preflight": {"device": "cpu", "derived_ports": [beside]},
        }
        (tmp_path / "spec.json").write_text(json.dumps(document))
        status = cli.main(["preflight", "--spec", str(tmp_path / "spec.json"), "--json"])
        listener.communicate("")
    found = {one["id"]: one for one in json.loads(capsys.readouterr().out)["findings"]}
    assert status == 1
    for id in ("port-taken", "port-derived"):
        assert found[id]["level"] == "fail" and f"(pid {listener.pid}, " in found[id]["seen"]
