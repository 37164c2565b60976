"""The plumbing of `make gpu-check`, on the stand-in engine: everything but the CUDA calls."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.container.deploying import ssh_data
from tests.gpu import checks, run
from tests.gpu.bench import ENGINE as ENGINE_NAME
from tests.gpu.bench import UNIT, Bench
from tests.hosts.host import Host
from tests.hosts.standins.install import install_into
from tests.support import waiting

pytestmark = [pytest.mark.container, pytest.mark.timeout(600)]

ENGINE: dict[str, Any] = {
    "model": {"path": "/models/tiny"},
    "port": 30000,
    "gpus": [0, 1],
    "kernel": {"source": "none"},
    "tensor_parallel": 2,
    "install": {"pip_arguments": ["--no-index", "--find-links=/opt/standins/wheels"]},
    "readiness": {"limits": {"sample_s": 0.5, "respawn_s": 1, "start_s": 60}},
}
NO_GPU = {
    "holders",
    "probe",
    "module_missing",
    "cache_too_small",
    "memory_taken",
    "memory_of_nobody",
}
LEFT_OUT = {
    # The stand-in has another way of asking, no kernel, no torch, and one shape of drafters: they have
    # tests of their own.
    *("first_token", "kernel", "collective", "collective_faults", "auto_profile", "eagle_random"),
    *("standalone", "bad_shards", "strict"),
    # They take a minute each, and test_switch and test_readiness have the like of them.
    *("killed_process", "stopped_process", "nccl", "port_taken"),
}


def test_the_checks_run_on_a_host_without_a_gpu(module_host_factory: Any, tmp_path: Path) -> None:
    host: Host = module_host_factory("gpu-check", gpus=2)
    install_into(host)
    ssh = {**ssh_data(host), "hostname": host.ip}
    bench = Bench(host, "gpu-check", ssh, ENGINE, None, "/models", tmp_path)
    *wanted, remove = [one for one in checks.ALL if one.name not in LEFT_OUT]

    status = run.run(bench, wanted)
    # As CUDA leaves it of a process that was killed; the watch takes it away with the start.
    cache = f"/var/cache/sglang/{ENGINE_NAME}"
    pipe = f"{cache}/corepipe_vm_999999999"
    host.exec("mkfifo", pipe)
    host.exec("chown", f"--reference={cache}", pipe)
    host.exec("systemctl", "stop", UNIT)
    waiting.until(lambda: host.exec("test", "-e", pipe, check=False).returncode != 0, every_s=0.3)
    status |= run.run(bench, [remove])

    document = json.loads((tmp_path / "gpu-check.json").read_text())
    outcomes = {entry["name"]: entry["outcome"] for entry in document["checks"]}
    why = {entry["name"]: entry.get("why") for entry in document["checks"]}
    assert {name for name, outcome in outcomes.items() if outcome == "failed"} == set(), why
    skipped = {name for name, outcome in outcomes.items() if outcome == "skipped"}
    assert skipped - {"watch_cost"} == {*NO_GPU, "reboot"}, why
    assert status == 0
    measured = {entry["name"]: entry.get("measured") for entry in document["checks"]}
    assert measured["deploy"]["outcome"] == "ready"
    assert measured["deploy"]["deploy_s"] > 0
    assert (tmp_path / "traces/gpu-deploy/journal.jsonl").read_text().startswith('{"t"')
