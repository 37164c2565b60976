"""The stand-ins behave as the real programs were measured to; each manner is checked for real."""

from __future__ import annotations

import hashlib
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from sglangctl.proc import procfs
from tests.hosts.standins import wheel
from tests.hosts.standins.local import Machine

# nvidia-smi


FIELDS = (
    "index,uuid,name,pci.bus_id,compute_cap,memory.used,memory.total,utilization.gpu,"
    "power.draw,driver_version"
)
CSV = "--format=csv,noheader,nounits"


def test_nvidia_smi_answers_from_who_holds_the_devices(machine: Machine) -> None:
    idle = machine.smi(f"--query-gpu={FIELDS}", CSV).stdout.splitlines()
    assert len(idle) == 2
    row = idle[1].split(", ")
    assert row[0] == "1" and row[4:8] == ["12.0", "0", "97887", "0"]
    assert "RTX PRO 6000" in row[2] and row[3] == "00000000:02:00.0"
    with open(machine.folder / "dev/nvidia1") as held:
        # A holder that says nothing, as a detokenizer, is not listed.
        assert machine.smi("--query-compute-apps=pid,used_memory", CSV).stdout == ""
        run = machine.folder / "run"
        run.mkdir()
        (run / f"{os.getpid()}.json").write_text('{"1": 5000, "0": 7}')
        apps = machine.smi("--query-compute-apps=pid,used_memory,gpu_uuid", CSV).stdout
        assert apps == f"{os.getpid()}, 5000, {row[1]}\n"
        used = machine.smi("--query-gpu=memory.used", CSV).stdout.split()
        assert used == ["0", "5000"]
        assert held
    assert machine.smi("--query-gpu=memory.used", CSV).stdout.split() == ["0", "0"]


def test_nvidia_smi_other_forms(machine: Machine) -> None:
    assert machine.smi("--query-gpu=index,memory.total", "--format=csv").stdout.splitlines() == [
        "index, memory.total",
        "0, 97887 MiB",
        "1, 97887 MiB",
    ]
    assert machine.smi("-i", "1", "--query-gpu=index", CSV).stdout == "1\n"
    assert machine.smi("-L").stdout.count("(UUID: GPU-") == 2
    assert "No running processes found" in machine.smi().stdout
    assert machine.smi("-q").stdout.count("FB Memory Usage") == 2
    wrong = machine.smi("--query-gpu=index,no.such", CSV)
    assert wrong.returncode == 2 and "not a valid field to query" in wrong.stdout


def test_nvidia_smi_states_that_need_a_person(machine: Machine) -> None:
    broken = machine.smi("-L", fail="driver")
    assert broken.returncode == 9
    assert "couldn't communicate with the NVIDIA driver" in broken.stdout
    assert machine.smi("-L", fail="mismatch").returncode == 18
    override = {"0": {"memory_mib": 71000}, "1": {"utilization_pct": 100, "power_w": 84.0}}
    rows = machine.smi(
        "--query-gpu=memory.used,utilization.gpu,power.draw", CSV, override=override
    ).stdout.splitlines()
    assert rows == ["71000, 0, 30.00", "0, 100, 84.00"]
    assert machine.smi("--query-compute-apps=pid", CSV, override=override).stdout == ""


# The model and the wheel


def test_wheel_is_deterministic_and_installs_as_the_pinned_version(tmp_path: Path) -> None:
    one, two = wheel.build(tmp_path / "a"), wheel.build(tmp_path / "b")
    assert hashlib.sha256(one.read_bytes()).digest() == hashlib.sha256(two.read_bytes()).digest()
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--no-index", "--no-deps"]
    target = tmp_path / "site"
    pip += ["--find-links", str(one.parent), "--target", str(target), "sglang==0.5.23"]
    subprocess.run(pip, check=True, capture_output=True)
    code = "import importlib.metadata as m; print(m.version('sglang'))"
    shown = subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, "PYTHONPATH": str(target)},
        capture_output=True,
        text=True,
        check=True,
    )
    assert shown.stdout == "0.5.23+standin\n"
    assert (target / "sglang/_standin/shared/title.py").exists()


def test_model_folder_has_sound_shards(machine: Machine) -> None:
    index = json.loads((machine.model / "model.safetensors.index.json").read_text())
    names = set(index["weight_map"].values())
    assert len(names) == 6
    assert all((machine.model / name).stat().st_size > 65536 for name in names)


# vLLM


def test_vllm_tree_and_answers(machine: Machine) -> None:
    run = machine.vllm("--served-model-name", "kimi", "--tensor-parallel-size", "2", START_S="0.3")
    assert run.session() and not run.serves()
    run.until(lambda: run.serves(), "serving")
    titles = sorted(run.session().values())
    assert titles[-3:] == ["VLLM::EngineCore", "VLLM::Worker_TP0", "VLLM::Worker_TP1"]
    assert "resource_tracker" in titles[0] or "resource_tracker" in titles[1]
    core = run.titled("VLLM::EngineCore")
    stat = procfs.stat(core)
    assert stat and stat.comm == "VLLM::EngineCor" and stat.ppid == run.pid
    assert machine.holders(0) == {run.pid, core, run.titled("VLLM::Worker_TP0")}
    listed = machine.smi("--query-compute-apps=pid,used_memory", CSV).stdout.splitlines()
    workers = [run.titled("VLLM::Worker_TP0"), run.titled("VLLM::Worker_TP1")]
    assert listed == [f"{pid}, 76000" for pid in workers]
    assert run.get("/v1/models")[1]["data"][0]["id"] == "kimi"
    status, body = run.get("/v1/completions", {"model": "kimi", "prompt": "x", "max_tokens": 4})
    assert status == 200 and body["usage"]["completion_tokens"] == 4
    assert run.get("/v1/chat/completions", {"model": "other", "messages": []})[0] == 404


def test_vllm_children_survive_kill_9_of_the_parent(machine: Machine) -> None:
    run = machine.vllm(START_S="0.1")
    run.until(lambda: run.serves(), "serving")
    os.kill(run.pid, signal.SIGKILL)
    run.exit()
    time.sleep(0.7)
    left = run.session()
    assert {"VLLM::EngineCore", "VLLM::Worker"} <= set(left.values())
    stat = procfs.stat(run.titled("VLLM::EngineCore"))
    assert stat and stat.ppid != run.pid and stat.session == run.pid
    assert not run.serves()
    assert len(machine.holders(0)) == 2


def test_vllm_api_servers_keep_the_port(machine: Machine) -> None:
    run = machine.vllm("--api-server-count", "2", START_S="0.1")
    run.until(lambda: run.serves(), "serving")
    os.kill(run.pid, signal.SIGKILL)
    run.exit()
    assert {"VLLM::APIServer_0", "VLLM::APIServer_1"} <= set(run.session().values())
    assert run.serves()


def test_vllm_stops(machine: Machine) -> None:
    run = machine.vllm(START_S="0.1", STOP_S="0.2")
    run.until(lambda: run.serves(), "serving")
    run.process.terminate()
    assert run.exit() == 0
    # Its children have ended, or are about to: the kernel ends each at its own time.
    run.until(lambda: all("resource_tracker" in t for t in run.session().values()), "alone")


def test_vllm_that_ignores_sigterm(machine: Machine) -> None:
    run = machine.vllm(START_S="0.1", IGNORE_TERM="1")
    run.until(lambda: run.serves(), "serving")
    for pid in run.session():
        os.kill(pid, signal.SIGTERM)
    time.sleep(0.5)
    assert run.process.poll() is None and run.serves()
    assert {"VLLM::EngineCore", "VLLM::Worker"} <= set(run.session().values())


@pytest.mark.slow
def test_vllm_engine_core_killed(machine: Machine) -> None:
    run = machine.vllm(START_S="0.1", ENGINE_DEAD_S="1.0", WORKER_DEAD_S="0.1")
    run.until(lambda: run.serves(), "serving")
    os.kill(run.titled("VLLM::EngineCore"), signal.SIGKILL)
    run.until(lambda: run.get("/health")[0] == 503, "unhealthy")
    assert run.exit() == 0
    run.until(lambda: "VLLM::Worker" not in run.session().values(), "worker gone")


@pytest.mark.slow
def test_vllm_engine_core_stopped(machine: Machine) -> None:
    run = machine.vllm(START_S="0.1", STOP_S="0.1", TERM_S="1.5")
    run.until(run.serves, "serving")
    os.kill(run.titled("VLLM::EngineCore"), signal.SIGSTOP)
    assert run.get("/health")[0] == 200
    begin = time.monotonic()
    run.process.terminate()
    assert run.exit() == 0 and time.monotonic() - begin > 1.5
