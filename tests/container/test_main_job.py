"""The main job on the real engine: a bare host, SGLang 0.5.23 on the processor, two deploys.

One host and one cold start for all of it, because a start of the real engine takes a minute here;
the tests below run in the order of the file. Everything that needs many starts is in
test_switch.py, on the stand-in.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import requests

from tests.container.continuity import answered
from tests.container.deploying import (
    changed,
    deploy,
    pending,
    ssh_data,
    write_inventory,
)
from tests.container.real_engine import WANTED
from tests.hosts.host import Host
from tests.hosts.say import ROOT

pytestmark = [pytest.mark.container, pytest.mark.timeout(900)]

PLANTED = "sk-planted-0123456789-do-not-show"
ENGINE: dict[str, Any] = {
    **WANTED,
    "listen": "0.0.0.0",
    "api_key": {"env": "TEST_ENGINE_KEY"},
    "hardening": "strict",
}


class Scene:
    """The host, its inventory and what the first deploy said."""

    def __init__(self, host: Host, folder: Path) -> None:
        self.host, self.folder = host, folder
        self.inventory = folder / "hosts.yml"
        self.write(ENGINE)
        self.first: subprocess.CompletedProcess[str] | None = None

    def write(self, engine: dict[str, Any]) -> None:
        host = {"ssh": ssh_data(self.host), "engines": {"tiny": engine}}
        write_inventory(self.inventory, {self.host.ip: host})

    def url(self, path: str) -> str:
        return f"http://{self.host.ip}:30000{path}"


@pytest.fixture(scope="module")
def scene(module_host_factory: Any, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scene]:
    os.environ["TEST_ENGINE_KEY"] = PLANTED
    yield Scene(module_host_factory("real", image="engine"), tmp_path_factory.mktemp("main"))
    del os.environ["TEST_ENGINE_KEY"]


def test_a_cold_deploy_ends_with_a_real_generation(scene: Scene) -> None:
    began = time.monotonic()
    scene.first = deploy(scene.inventory, "-y")
    text = scene.first.stdout + scene.first.stderr
    assert scene.first.returncode == 0, text
    assert re.search(r"\bready\b", text), text
    assert re.search(r"[0-9.]+ tokens/s", text), text
    assert PLANTED not in text
    print(f"cold deploy: {time.monotonic() - began:.0f} s")
    answer = requests.post(
        scene.url("/v1/chat/completions"),
        json={"model": "tiny-qwen3", "messages": [{"role": "user", "content": "hi"}]},
        headers={"Authorization": f"Bearer {PLANTED}"},
        timeout=60,
    )
    assert answer.status_code == 200, answer.text
    assert answer.json()["usage"]["completion_tokens"] > 0
    assert requests.get(scene.url("/v1/models"), timeout=30).status_code == 401


def test_the_second_deploy_changes_nothing(scene: Scene) -> None:
    before = scene.host.exec("systemctl", "show", "-p", "MainPID,NRestarts", "sglang-tiny").stdout
    assert pending(scene.inventory) == {}
    done = deploy(scene.inventory, "-y", "--json")
    assert done.returncode == 0, done.stderr
    assert changed(done) == {}
    after = scene.host.exec("systemctl", "show", "-p", "MainPID,NRestarts", "sglang-tiny").stdout
    assert after == before


def test_the_planted_key_is_where_only_the_engine_can_read_it(scene: Scene) -> None:
    host = scene.host
    lines = host.exec(
        "sh", "-c", "cat /proc/[0-9]*/cmdline /proc/[0-9]*/comm | tr '\\0' ' '"
    ).stdout
    assert "sglang.launch_server" in lines
    assert PLANTED not in lines
    found = host.exec("grep", "-rlsF", PLANTED, "/etc", "/var", "/opt", "/tmp", "/run", check=False)
    # SGLang itself writes its arguments into its log: its folder is closed, ours are masked.
    allowed = re.compile(
        r"/var/lib/sglangctl/tiny/releases/[0-9a-f]+/engine\.yaml|/var/log/sglang/tiny/engine\.log"
    )
    files = found.stdout.split()
    assert files and all(allowed.fullmatch(path) for path in files), files
    for path in files:
        shown = host.exec("runuser", "-u", "nobody", "--", "cat", path, check=False)
        assert shown.returncode != 0, path
    for command in ("status", "logs", "journal"):
        assert PLANTED not in host.exec("sglangctl", command, "tiny").stdout
    assert (
        "***" in host.exec("sh", "-c", "sglangctl logs tiny -n 100000 | grep server_args=").stdout
    )


def test_a_changed_nccl_value_is_one_file_one_release_and_one_restart(scene: Scene) -> None:
    host = scene.host
    venvs = host.exec("sh", "-c", "find /opt/sglang/venvs -printf '%p %T@\\n' | sha256sum").stdout
    scene.write({**ENGINE, "nccl": {"overrides": {"NCCL_BUFFSIZE": 8388608}}})
    plan = deploy(scene.inventory, "--dry", "--diff")
    text = plan.stdout + plan.stderr
    assert plan.returncode == 0, text
    assert "+NCCL_BUFFSIZE=8388608" in re.sub('"', "", text)
    assert text.count("current/nccl.env: changed") == 1, text
    assert not re.search(r"(engine\.env|engine\.yaml|sglang\.service): changed", text), text
    assert "restart of tiny: nccl.env changed" in text
    planned = pending(scene.inventory)
    assert set(planned) == {
        "Engine | tiny: release",
        "Switch | tiny: live release",
        "Readiness | tiny: serves",
    }
    with answered(scene.url("/health")) as statuses:
        done = deploy(scene.inventory, "-y", "--json")
    assert done.returncode == 0, done.stderr
    assert set(changed(done)) == set(planned)
    dark = len(statuses) - statuses.count(200)
    print(f"plain: {dark} of {len(statuses)} questions were not answered")
    main = host.exec("systemctl", "show", "-p", "MainPID", "--value", "sglang-tiny").stdout.strip()
    environment = host.exec("cat", f"/proc/{main}/environ").stdout
    assert "NCCL_BUFFSIZE=8388608" in environment.split("\0")
    after = host.exec("sh", "-c", "find /opt/sglang/venvs -printf '%p %T@\\n' | sha256sum").stdout
    assert after == venvs
    assert pending(scene.inventory) == {}


def test_sglang_verify_says_ready(scene: Scene) -> None:
    done = subprocess.run(
        [sys.executable, "-c", "from roles.entry.verify import main; raise SystemExit(main())"],
        cwd=ROOT,
        env={**os.environ, "SGLANG_INVENTORY": str(scene.inventory)},
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_a_reboot_brings_the_engine_back(scene: Scene) -> None:
    scene.host.reboot()
    back = "until systemctl is-active -q sglang-tiny; do sleep 1; done"
    scene.host.exec("timeout", "300", "sh", "-c", back, timeout=310)
    done = deploy(scene.inventory, "-y", script="verify")
    assert done.returncode == 0, done.stdout + done.stderr
    status = json.loads(scene.host.exec("sglangctl", "status", "tiny", "--json").stdout)
    assert status["status"][0]["outcome"] in ("ready", "serving"), status
