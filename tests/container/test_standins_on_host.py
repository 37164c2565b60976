"""The stand-ins on a container host: as services, under systemd, seen by root."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.hosts.host import Host
from tests.hosts.standins.install import configure_nvidia, install_into, vllm_settings

pytestmark = pytest.mark.container
CSV = "--format=csv,noheader,nounits"
UNIT = """
[Service]
Type=exec
User=engine
CacheDirectory=engine
ProtectSystem=strict
PrivateTmp=yes
NoNewPrivileges=yes
Environment=SGLANG_CACHE_DIR=/var/cache/engine STANDIN_START_S=1
ExecStart=/opt/venv/bin/python -m sglang.launch_server --config /etc/engine.yaml
StandardOutput=append:/var/log/sglang/engine.log
StandardError=append:/var/log/sglang/engine.log
KillMode=mixed
"""
CONFIG = 'model-path: "/models/tiny"\ntp-size: 2\nport: 30000\napi-key: "sk-planted"\n'


@pytest.fixture(scope="module")
def host(module_host_factory: Callable[..., Host]) -> Host:
    made = module_host_factory("standins", gpus=2)
    install_into(made, gpus=2)
    return made


def until(true: Callable[[], object], what: str, seconds: float = 60) -> None:
    end = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < end, f"not {what} in {seconds} s"
        time.sleep(0.3)


def get(host: Host, url: str) -> tuple[str, str]:
    """(status, body) of a GET inside the host; status 000 without an answer."""
    code = (
        "import sys,urllib.request as u,urllib.error as e\n"
        "try: r=u.urlopen(sys.argv[1],timeout=10); print(r.status, r.read().decode())\n"
        "except e.HTTPError as x: print(x.code, x.read().decode())\n"
        "except OSError: print('000')\n"
    )
    status, _, body = host.exec("python3", "-c", code, url).stdout.strip().partition(" ")
    return status, body


def titles(host: Host, unit: str) -> list[str]:
    """Command lines of a unit's processes."""
    group = host.exec("systemctl", "show", "-P", "ControlGroup", unit).stdout.strip()
    shell = (
        f"cd /sys/fs/cgroup; for p in $(cat systemd{group}/cgroup.procs "
        f"unified{group}/cgroup.procs .{group}/cgroup.procs 2>/dev/null); do "
        "tr '\\0' ' ' </proc/$p/cmdline | sed 's/ *$//'; echo; done"
    )
    return host.exec("sh", "-c", shell).stdout.split("\n")


def apps(host: Host) -> list[str]:
    query = "--query-compute-apps=pid,used_memory"
    return host.exec("nvidia-smi", query, CSV).stdout.splitlines()


def test_installing_twice_changes_nothing(host: Host) -> None:
    shell = "find /opt/standins /opt/vllm /models /usr/bin/nvidia-smi -type f | xargs sha256sum"
    before = host.exec("sh", "-c", shell).stdout
    install_into(host, gpus=2)
    assert host.exec("sh", "-c", shell).stdout == before
    assert host.exec("nvidia-smi", "-L").stdout.count("GPU ") == 2


def test_vllm_service_dies_the_bad_way_and_comes_back(host: Host) -> None:
    settings = vllm_settings(GPUS=2, PORT=8000, VLLM_STANDIN_START_S=0.5)
    host.copy_in(settings.encode(), "/etc/default/vllm-kimi")
    host.exec("systemctl", "start", "vllm-kimi")
    until(lambda: get(host, "http://127.0.0.1:8000/v1/models")[0] == "200", "serving")
    models = json.loads(get(host, "http://127.0.0.1:8000/v1/models")[1])
    assert models["data"][0]["id"] == "kimi"
    found = titles(host, "vllm-kimi")
    assert {"VLLM::EngineCore", "VLLM::Worker_TP0", "VLLM::Worker_TP1"} <= set(found)
    main = host.exec("systemctl", "show", "-P", "MainPID", "vllm-kimi").stdout.strip()
    assert host.exec("cat", f"/proc/{main}/comm").stdout == "vllm\n"
    line = host.exec("sh", "-c", f"tr '\\0' ' ' </proc/{main}/cmdline").stdout
    assert line.startswith("/opt/vllm/bin/python /opt/vllm/bin/vllm serve /models/tiny ")
    assert [row.split(", ")[1] for row in apps(host)] == ["76000", "76000"]
    host.exec("systemctl", "stop", "vllm-kimi")
    assert apps(host) == []


def test_engine_as_a_service_in_a_sandbox(host: Host) -> None:
    host.exec("sh", "-c", "id engine >/dev/null 2>&1 || useradd --system engine")
    host.exec("python3", "-m", "venv", "/opt/venv", timeout=300)
    wheels = ["--no-index", "--find-links", "/opt/standins/wheels", "sglang==0.5.23"]
    host.exec("/opt/venv/bin/python", "-m", "pip", "install", "--quiet", *wheels, timeout=300)
    host.copy_in(CONFIG.encode(), "/etc/engine.yaml")
    host.exec("install", "-d", "-o", "engine", "/var/log/sglang")
    host.copy_in(UNIT.encode(), "/etc/systemd/system/engine.service")
    host.exec("systemctl", "daemon-reload")
    host.exec("systemctl", "start", "engine")
    url = "http://127.0.0.1:30000"
    until(lambda: get(host, f"{url}/health")[0] == "200", "healthy")
    assert get(host, f"{url}/v1/models")[0] == "401"
    found = titles(host, "engine")
    schedulers = {"sglang::scheduler_TP0", "sglang::scheduler_TP1"}
    assert {*schedulers, "sglang::detokenizer"} <= set(found)
    # Memory shows through a sandbox in which /run cannot be written.
    assert len(apps(host)) == 2
    log = host.exec("cat", "/var/log/sglang/engine.log").stdout
    assert "'api_key': 'sk-planted'" in log and "ready to roll!" in log
    host.exec("systemctl", "stop", "engine", timeout=60)
    assert apps(host) == []


def test_states_that_need_a_person(host: Host) -> None:
    configure_nvidia(host, gpus=2, override={"1": {"memory_mib": 70000}})
    query = ["nvidia-smi", "--query-gpu=memory.used", CSV]
    assert host.exec(*query).stdout.split() == ["0", "70000"]
    configure_nvidia(host, gpus=2, fail="driver")
    broken = host.exec("nvidia-smi", check=False)
    assert broken.returncode == 9 and "couldn't communicate" in broken.stdout
    configure_nvidia(host, gpus=2)


def test_nothing_of_this_machine_is_on_the_host(host: Host) -> None:
    here = str(Path(__file__).resolve().parents[2])
    found = host.exec("grep", "-rlF", here, "/opt/standins", "/opt/vllm", "/etc", check=False)
    assert found.stdout == ""
