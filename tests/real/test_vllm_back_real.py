"""A real vLLM that a deploy replaces serves again when the real SGLang fails.

What was measured is kept: set SGLANG_EVIDENCE to a folder to have it there.
"""

from __future__ import annotations

import json
import os
import time
from pathlib import Path
from typing import Any

import pytest

from tests.container import real_vllm
from tests.container.continuity import answered
from tests.container.deploying import deploy, pending, ssh_data, write_inventory
from tests.container.real_engine import WANTED
from tests.container.real_vllm import MODELS, VLLM
from tests.hosts.host import Host

pytestmark = [pytest.mark.container, pytest.mark.real, pytest.mark.timeout(3600)]

UNIT = "sglang-tiny.service"
ENGINE: dict[str, Any] = {
    **WANTED,
    "replaces": [VLLM],
    "cutover": "plain",  # a gate would find it out while vLLM serves
    "environment": {"GLOO_SOCKET_IFNAME": "nowhere0"},
}
COMPLETION = {"model": "/models/tiny-qwen3", "prompt": "Say hello.", "max_tokens": 8}


@pytest.fixture(scope="module")
def host(module_host_factory: Any) -> Host:
    made: Host = module_host_factory("vllmback", image="engine")
    real_vllm.install(made)
    real_vllm.start(made)
    return made


def show(host: Host, unit: str, name: str) -> str:
    return host.exec("systemctl", "show", "-p", name, "--value", "--", unit).stdout.strip()


def models(host: Host) -> list[str]:
    return [one["id"] for one in json.loads(host.exec("curl", "-sf", MODELS).stdout)["data"]]


def port_is_its_own(host: Host) -> bool:
    """Whether all who listen on the port are in the cgroup of the unit."""
    listening = host.exec("fuser", "8000/tcp").stdout.split()
    cgroups = [host.exec("cat", f"/proc/{pid}/cgroup").stdout for pid in listening]
    return bool(listening) and all(f"/{VLLM}" in one for one in cgroups)


def test_a_real_vllm_serves_again_when_the_new_release_fails(host: Host, tmp_path: Path) -> None:
    served, main = models(host), show(host, VLLM, "MainPID")
    assert served and port_is_its_own(host)
    section = {"ssh": ssh_data(host), "engines": {"tiny": ENGINE}}
    inventory = write_inventory(tmp_path / "hosts.yml", {host.ip: section})
    began = time.monotonic()
    with answered(f"http://{host.ip}:8000/v1/models") as statuses:
        done = deploy(inventory, "-y")
    seconds = time.monotonic() - began
    said = done.stdout + done.stderr
    assert done.returncode == 1, said
    assert f"if tiny does not become ready: back to {VLLM}" in said, said
    assert f"{VLLM} serves again" in said, said
    assert 0 in statuses, "it was stopped for the new one"

    assert show(host, VLLM, "ActiveState") == "active"
    assert show(host, VLLM, "UnitFileState") == "enabled"
    assert show(host, VLLM, "MainPID") not in ("0", main)
    assert port_is_its_own(host)
    assert models(host) == served
    argv = ("curl", "-sf", "-H", "Content-Type: application/json", "-d", json.dumps(COMPLETION))
    answer = json.loads(host.exec(*argv, MODELS.replace("models", "completions")).stdout)
    assert answer["choices"][0]["text"]
    assert show(host, UNIT, "ActiveState") in ("inactive", "failed")
    assert show(host, UNIT, "UnitFileState") in ("disabled", "")
    assert any("live release" in name for name in pending(inventory)), "the next plan knows it"
    if os.environ.get("SGLANG_EVIDENCE"):
        record = {
            "v": 1,
            "deploy_s": round(seconds, 1),
            "asked_each_second": len(statuses),
            "not_answered": len(statuses) - statuses.count(200),
            "models": served,
            "completion": answer["choices"][0]["text"],
            "said": [line.strip() for line in said.splitlines() if line.strip()],
        }
        path = Path(os.environ["SGLANG_EVIDENCE"], "rollback-vllm.json")
        path.write_text(json.dumps(record, indent=1) + "\n")
