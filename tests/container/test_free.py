"""Holders and free on a host with systemd, real processes and fake devices."""

from __future__ import annotations

import json
import os
import signal
import stat
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from roles.remote import program
from tests.container.freeing import KIMI, Freeing
from tests.hosts import images
from tests.hosts.standins.install import configure_nvidia

pytestmark = [pytest.mark.container, pytest.mark.timeout(300)]
ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def prepared(module_host_factory) -> Freeing:
    return Freeing.prepare(module_host_factory("free", gpus=2))


@pytest.fixture
def box(prepared: Freeing) -> Iterator[Freeing]:
    prepared.clean()
    yield prepared
    prepared.clean()


# Who is who.


def test_every_class_with_its_reason(box: Freeing) -> None:
    box.configure(host={"protected": ["my-metrics"]})
    for name in ("kimi", "qwen"):
        gpu = 0 if name == "kimi" else 1
        box.unit(
            f"sglang-{name}.service",
            f"/bin/bash -c 'exec -a sglang::scheduler_TP0 sleep 900 9<>/dev/nvidia{gpu}'",
            "sglang",
        )
    box.sh("systemctl start sglang-kimi.service sglang-qwen.service")
    vllm = box.start_vllm()
    orphan = box.hold("VLLM::Worker", user="bob")
    grep = box.hold("grep")
    found = box.holders("--engine", "kimi")
    by_class: dict[str, list[int]] = {}
    for pid, item in found.items():
        by_class.setdefault(item["class"], []).append(pid)
        assert item["reason"]
    assert set(by_class["replaced"]) <= set(vllm)
    assert len(by_class["replaced"]) == 4  # the main process, EngineCore and two workers
    assert by_class["ours"] == box.pids("sglang-kimi.service")
    assert by_class["sibling"] == box.pids("sglang-qwen.service")
    # The same title, another user: not what the inventory replaces.
    assert by_class["engine"] == [orphan]
    assert "of another user than vllm-kimi.service (vllm)" in found[orphan]["reason"]
    assert by_class["foreign"] == [grep]
    # The parent and EngineCore have no memory and are seen all the same.
    listed = [pid for pid in by_class["replaced"] if found[pid]["memory_mib"]]
    assert len(listed) == 2
    assert {item["unit"] for item in found.values()} == {
        "sglang-kimi.service",
        "sglang-qwen.service",
        "vllm-kimi.service",
        None,
    }
    assert found[vllm[0]]["user"] == "vllm"
    protected = [box.desktop(), box.hold("my-metrics")]
    found = box.holders("--engine", "kimi")
    assert [found[pid]["class"] for pid in protected] == ["protected"] * 2
    # A name that a process gives itself is worth nothing, nor is a file at a GPU's path.
    liar = box.hold("Xorg", user="bob")
    box.sh(
        "unshare --mount sh -c 'mount -t tmpfs x /dev && touch /dev/nvidia0 && "
        "exec sleep 901 9</dev/nvidia0' >/dev/null 2>&1 </dev/null & sleep 0.5"
    )
    theirs = int(box.sh("pgrep -fx 'sleep 901'"))
    found = box.holders("--engine", "kimi")
    assert found[liar]["class"] == "foreign" and theirs not in found
    box.sh(f"kill {theirs} {liar}")
    table = box.ctl("holders", "--engine", "kimi")
    assert "GPU 0 NVIDIA RTX PRO 6000" in table and "76000 of 97887 MiB used" in table
    assert "replaced: in vllm-kimi.service, which the inventory replaces" in table


def test_a_real_grep_is_foreign_and_survives(box: Freeing) -> None:
    box.sh("mkfifo -m 600 /tmp/notes.txt; touch /tmp/notes.txt; true")
    box.host.exec(
        "systemd-run", "--quiet", "--unit=other", "--", "/bin/bash", "-c",
        "exec grep sglang.launch_server /tmp/notes.txt 9<>/dev/nvidia0",
    )  # fmt: skip
    deadline = time.monotonic() + 10
    while not (found := box.holders()):
        assert time.monotonic() < deadline
    ((pid, item),) = found.items()
    assert item["command"][:2] == ["grep", "sglang.launch_server"]
    assert item["class"] == "foreign"
    text = box.ctl("free", "kimi", "--policy", "engines", status=3)
    assert "`replaces: [other.service]` of kimi in the inventory, or on the host: " in text
    assert "sglangctl free kimi --policy all" in text
    assert box.alive(pid)
    box.sh("systemctl stop other; rm /tmp/notes.txt")


def test_no_collective_beside_a_holder(box: Freeing) -> None:
    box.configure(tensor_parallel=2)
    holder = box.hold("VLLM::Worker", gpus=(1,))
    said = box.ctl("collective", "kimi", status=3)
    assert f"GPU 1 has a holder, {holder} VLLM::Worker" in said
    assert "first: sglangctl free kimi --policy engines" in said
    box.clean()
    box.configure(tensor_parallel=2)
    assert "no release of kimi is staged" in box.ctl("collective", "kimi", status=2)


def test_an_orphan_outside_of_its_units_cgroup_is_still_replaced(box: Freeing) -> None:
    """Moved away by whatever; its session was led by the unit's main process."""
    vllm = box.start_vllm("KillMode=process\nRestart=no")
    main = int(box.show("vllm-kimi.service", "MainPID"))
    box.sh(f"kill -9 {main}")
    while box.show("vllm-kimi.service", "ActiveState") == "active":
        time.sleep(0.05)
    left = [pid for pid in vllm if box.alive(pid) and pid != main]
    workers = [pid for pid in left if "VLLM" in box.sh(f"cat /proc/{pid}/cmdline")]
    assert len(workers) == 3
    for pid in left:
        box.sh(
            f"echo {pid} > /sys/fs/cgroup/systemd/cgroup.procs 2>/dev/null;"
            f"echo {pid} > /sys/fs/cgroup/unified/cgroup.procs 2>/dev/null; true"
        )
    assert box.pids("vllm-kimi.service") == []
    found = box.holders("--engine", "kimi")
    assert {found[pid]["class"] for pid in workers} == {"replaced"}
    assert all("an orphan of vllm-kimi.service" in found[pid]["reason"] for pid in workers)
    result = box.free()
    assert {one["pid"] for one in result["ended"]} == set(workers)
    assert not any(box.alive(pid) for pid in workers)
    for pid in left:
        box.sh(f"kill -9 {pid}", check=False)


# The rungs.


def test_a_unit_that_stops_at_once(box: Freeing) -> None:
    pids = box.start_vllm(VLLM_STANDIN_STOP_S=0.5)
    result = box.free()
    assert result["units_stopped"] == ["vllm-kimi.service"]
    # The engine's own time: from the stop until the unit was inactive. What freeing adds is at
    # most a second, on a machine that is not starved; never more than five.
    said = [
        json.loads(line)
        for line in box.sh("journalctl -u vllm-kimi.service -o json --no-pager").splitlines()
    ]
    stopping, stopped = (
        max(
            int(entry["__MONOTONIC_TIMESTAMP"])
            for entry in said
            if str(entry.get("MESSAGE", "")).startswith(f"{word} vllm-kimi.service")
        )
        for word in ("Stopping", "Stopped")
    )
    needed = (stopped - stopping) / 1e6
    assert 0.4 < needed < 10
    added = result["seconds"] - needed
    starved = os.getloadavg()[0] > 1.5 * len(os.sched_getaffinity(0))
    assert added <= (5.0 if starved else 1.0)
    assert not any(box.alive(pid) for pid in pids)
    assert box.show("vllm-kimi.service", "UnitFileState") == "disabled"
    assert box.show("vllm-kimi.service", "ActiveState") == "inactive"
    assert {one["how"] for one in result["ended"]} == {"unit"}
    assert box.holders() == {}
    # Again: nothing to do, and it says so.
    assert "all GPUs of kimi: nothing is in the way" in box.ctl("free", "kimi", "--dry-run")
    assert box.free()["ended"] == []


def test_a_unit_that_is_only_enabled_is_disabled(box: Freeing) -> None:
    box.sh("systemctl enable --quiet vllm-kimi.service")
    assert "stop and disable vllm-kimi.service" in box.ctl("free", "kimi", "--dry-run")
    box.free()
    assert box.show("vllm-kimi.service", "UnitFileState") == "disabled"


def test_disabling_a_linked_unit_does_not_lose_it(box: Freeing) -> None:
    box.sh(
        "mkdir -p /opt/team && cd /etc/systemd/system && mv vllm-kimi.service /opt/team/"
        " && systemctl daemon-reload && systemctl enable --quiet /opt/team/vllm-kimi.service"
    )
    try:
        assert box.show("vllm-kimi.service", "UnitFileState") == "enabled"
        box.free()
        link = box.sh("readlink /etc/systemd/system/vllm-kimi.service").strip()
        assert link == "/opt/team/vllm-kimi.service"
        assert box.show("vllm-kimi.service", "UnitFileState") == "linked"
        box.sh("systemctl start vllm-kimi.service && systemctl stop vllm-kimi.service")
    finally:
        box.sh(
            "rm -f /etc/systemd/system/vllm-kimi.service;"
            "mv /opt/team/vllm-kimi.service /etc/systemd/system/; systemctl daemon-reload"
        )


def test_a_unit_that_ignores_sigterm(box: Freeing) -> None:
    pids = box.start_vllm("TimeoutStopSec=infinity", VLLM_STANDIN_IGNORE_TERM=1)
    text = box.ctl("free", "kimi")
    assert "vllm-kimi.service: did not stop" in text
    assert "SIGTERM to" in text and "SIGKILL to" in text
    assert text.index("did not stop") < text.index("SIGTERM to") < text.index("SIGKILL to")
    assert not any(box.alive(pid) for pid in pids)
    assert box.show("vllm-kimi.service", "ActiveState") == "inactive"  # reset-failed


def test_orphans_after_kill_9_of_the_parent(box: Freeing) -> None:
    pids = box.start_vllm("KillMode=process\nRestart=no", MORE='"--api-server-count 2"', GPUS=2)
    main = int(box.show("vllm-kimi.service", "MainPID"))
    box.sh(f"kill -9 {main}")
    while box.show("vllm-kimi.service", "ActiveState") == "active":
        time.sleep(0.05)
    left = [pid for pid in pids if pid != main and box.alive(pid)]
    assert len(left) >= 5  # EngineCore, two workers, two API servers that keep the port
    assert box.sh("ss -Hltn sport = :8000").strip()
    result = box.free()
    assert not any(box.alive(pid) for pid in left)
    assert not box.sh("ss -Hltn sport = :8000").strip()
    assert result["leftovers"] == []


def test_sglang_killed_while_it_imports_leaves_orphans_that_stop_ends(box: Freeing) -> None:
    """SIGTERM during imports: the launcher ends at once, its children stay."""
    box.sh(
        "test -d /opt/sg || (python3 -m venv /opt/sg && /opt/sg/bin/pip install --quiet"
        " --no-index --find-links /opt/standins/wheels sglang==0.5.23)"
    )
    box.unit(
        "sglang-kimi.service",
        "/opt/sg/bin/python -m sglang.launch_server --model-path /models/tiny --tp-size 2"
        " --port 8000",
        more="KillMode=process\nEnvironment=STANDIN_IMPORTING_S=60 HOME=/tmp\nRestart=no",
    )
    box.sh("systemctl start sglang-kimi.service")
    deadline = time.monotonic() + 20
    while len(box.pids("sglang-kimi.service")) < 4:
        assert time.monotonic() < deadline
        time.sleep(0.05)
    time.sleep(1)
    box.sh(f"kill -TERM {box.show('sglang-kimi.service', 'MainPID')}")
    while box.show("sglang-kimi.service", "ActiveState") in ("active", "deactivating"):
        time.sleep(0.05)
    left = box.pids("sglang-kimi.service")
    assert left, "the stand-in should have left orphans behind"
    assert "nothing is in the way" in box.ctl("free", "kimi", "--dry-run")
    result = box.free("--stop")
    assert {one["pid"] for one in result["ended"]} >= set(left)
    assert not any(box.alive(pid) for pid in left)


def test_our_own_engine_that_warms_up_is_not_waited_for(box: Freeing) -> None:
    """It does not obey SIGTERM, and has nothing to finish."""
    box.sh(
        "test -d /opt/sg || (python3 -m venv /opt/sg && /opt/sg/bin/pip install --quiet"
        " --no-index --find-links /opt/standins/wheels sglang==0.5.23)"
    )
    box.configure(limits={"stop_units_s": 60.0, "stop_starting_s": 2.0})
    box.unit(
        "sglang-kimi.service",
        "/opt/sg/bin/python -m sglang.launch_server --model-path /models/tiny --port 8000",
        more="KillMode=mixed\nTimeoutStopSec=60\nRestart=no\n"
        "Environment=STANDIN_START_S=0.5 STANDIN_WARMING_S=300 HOME=/tmp\n"
        # As `sglangctl wait` does, which keeps the unit activating until it serves.
        "ExecStartPost=/bin/sleep 300",
    )
    box.sh("systemctl start --no-block sglang-kimi.service")
    deadline = time.monotonic() + 20
    while not box.sh(
        "journalctl -u sglang-kimi.service --no-pager | grep 'GET /model_info' || true"
    ):
        assert time.monotonic() < deadline, box.sh("journalctl -u sglang-kimi.service --no-pager")
        time.sleep(0.1)
    time.sleep(0.3)
    began = time.monotonic()
    assert "which does not serve yet" in box.ctl("free", "kimi", "--stop", "--dry-run")
    box.free("--stop")
    assert 2.0 <= time.monotonic() - began < 20
    assert box.pids("sglang-kimi.service") == []
    assert box.show("sglang-kimi.service", "ActiveState") == "inactive"


def test_a_stopped_engine_in_a_unit(box: Freeing) -> None:
    pids = box.start_vllm()
    for pid in pids:
        box.sh(f"kill -STOP {pid}")
    box.free()
    assert not any(box.alive(pid) for pid in pids)


def test_one_that_its_unit_starts_again_is_named(box: Freeing) -> None:
    """Its main process is a shell: not the engine itself, so the unit is not stopped whole."""
    box.unit(
        "other.service",
        "/bin/bash -c 'bash -c \"exec -a VLLM::Worker sleep 900 9<>/dev/nvidia0\"; exit 1'",
        more="Restart=always\nRestartSec=0.3\nStartLimitIntervalSec=0",
    )
    box.sh("systemctl start other.service")
    deadline = time.monotonic() + 10
    while not box.holders():
        assert time.monotonic() < deadline
    plan = box.ctl("free", "kimi", "--dry-run", "--policy", "engines")
    assert "other.service has Restart=always" in plan
    text = box.ctl("free", "kimi", "--policy", "engines", status=1)
    assert "VLLM::Worker 900 is back as" in text
    assert "put it into `replaces` of kimi" in text
    # And that is the cure.
    box.configure(replaces=["other.service"])
    assert box.free()["units_stopped"] == ["other.service"]
    assert box.holders() == {}


def test_an_undeclared_service_that_is_an_engine_is_stopped_whole(box: Freeing) -> None:
    box.unit(
        "other.service",
        "/bin/bash -c 'exec -a VLLM::EngineCore sleep 900 9<>/dev/nvidia0'",
        more="Restart=always\nRestartSec=0.1",
    )
    box.sh("systemctl enable --quiet --now other.service")
    deadline = time.monotonic() + 10
    while not box.holders():
        assert time.monotonic() < deadline
    result = box.free("--policy", "engines")
    assert result["units_stopped"] == ["other.service"]
    assert box.show("other.service", "ActiveState") == "inactive"
    assert box.show("other.service", "UnitFileState") == "enabled"  # not declared: not disabled


def test_a_timer_that_starts_it_again_is_named(box: Freeing) -> None:
    box.unit("other.service", "/bin/bash -c 'exec -a VLLM::A sleep 900 9<>/dev/nvidia0'")
    box.host.copy_in(
        b"[Timer]\nOnActiveSec=1h\n[Install]\nWantedBy=timers.target\n",
        "/etc/systemd/system/other.timer",
    )
    box.sh("systemctl daemon-reload; systemctl start other.service other.timer")
    box.configure(replaces=["other.service"])
    plan = box.ctl("free", "kimi", "--dry-run")
    assert "other.timer starts other.service again" in plan
    box.configure(replaces=["other.service", "other.timer"])
    box.free()
    assert box.show("other.timer", "ActiveState") == "inactive"


def test_units_and_their_orphans_on_cgroup_v2(host_factory) -> None:
    box = Freeing.prepare(host_factory("free-v2", gpus=2, unified_cgroup=True))
    request = json.dumps({"engine_configs": [KIMI]})
    assert json.loads(box.ctl("probe", "--request", request))["cgroup"] == "v2"
    pids = box.start_vllm("TimeoutStopSec=infinity", VLLM_STANDIN_IGNORE_TERM=1)
    found = box.holders("--engine", "kimi")
    assert {item["unit"] for item in found.values()} == {"vllm-kimi.service"}
    assert "SIGKILL to" in box.ctl("free", "kimi")
    assert not any(box.alive(pid) for pid in pids)
    box.configure()
    pids = box.start_vllm("KillMode=process\nRestart=no")
    main = int(box.show("vllm-kimi.service", "MainPID"))
    box.sh(f"kill -9 {main}")
    while box.show("vllm-kimi.service", "ActiveState") == "active":
        time.sleep(0.05)
    assert {item["class"] for item in box.holders("--engine", "kimi").values()} == {"replaced"}
    box.free()
    assert not any(box.alive(pid) for pid in pids)


# What is refused, and what is left alone.


def test_refusals_change_nothing_and_say_what_would_allow_it(box: Freeing) -> None:
    vllm = box.start_vllm()
    by_hand = box.hold("VLLM::Worker", user="bob", memory_mib=5000)
    before = state(box)
    text = box.ctl("free", "kimi", status=3)
    assert f"{by_hand} VLLM::Worker 900 (engine, GPU 0)" in text
    assert "allowed by: on the host: sglangctl free kimi --policy engines" in text
    assert f"started by hand, without a unit of their own ({by_hand})" in text
    assert "nothing to go back to" in text
    assert state(box) == before
    assert all(box.alive(pid) for pid in [*vllm, by_hand])
    result = box.free("--policy", "engines")
    assert not any(box.alive(pid) for pid in [*vllm, by_hand])
    assert result["units_stopped"] == ["vllm-kimi.service"]


def test_a_dry_run_changes_nothing(box: Freeing) -> None:
    box.start_vllm()
    box.hold("VLLM::Worker", user="bob")
    before, journals = state(box), box.sh("ls /var/lib/sglangctl/kimi/frees || true")
    for policy in ("declared", "engines", "all"):
        box.ctl("free", "kimi", "--dry-run", "--stop", "--policy", policy, status=None)
        box.ctl("free", "kimi", "--dry-run", "--json", "--policy", policy, status=None)
    assert state(box) == before
    assert box.sh("ls /var/lib/sglangctl/kimi/frees || true") == journals


def test_protected_siblings_and_other_gpus_outlive_every_policy(box: Freeing) -> None:
    box.configure(gpus=[0])
    box.unit(
        "sglang-qwen.service",
        "/bin/bash -c 'exec -a sglang::scheduler sleep 900 8<>/dev/nvidia0 9<>/dev/nvidia1'",
    )
    box.sh("systemctl start sglang-qwen.service")
    sibling = int(box.show("sglang-qwen.service", "MainPID"))
    desktop = box.desktop(memory_mib=300)
    elsewhere = box.hold("VLLM::Worker", gpus=(1,))
    target = box.hold("python", exe="/bin/sleep")
    result = box.free("--policy", "all", "--stop")
    assert [one["pid"] for one in result["ended"]] == [target]
    assert all(box.alive(pid) for pid in (sibling, desktop, elsewhere))
    # On the same GPU by the inventory: refused, by every policy.
    box.configure(gpus=[0, 1])
    text = box.ctl("free", "kimi", "--policy", "all", status=3)
    assert "no policy ends a sibling: give kimi and qwen different `gpus`" in text
    assert box.alive(elsewhere)


# What needs a person.


def test_memory_without_a_holder_and_a_wedged_gpu(box: Freeing) -> None:
    try:
        configure_nvidia(box.host, gpus=2, override={"1": {"memory_mib": 40000}})
        text = box.ctl("free", "kimi", status=3)
        assert "40,000 MiB on GPU 1 belong to no process that can be seen from here" in text
        configure_nvidia(box.host, gpus=2, override={"0": {"utilization_pct": 100, "power_w": 84}})
        text = box.ctl("free", "kimi", status=1)
        assert "needs a GPU reset or reboot; killing more processes cannot help" in text
        # On a GPU that the engine does not use it is nobody's business.
        box.configure(gpus=[1])
        box.free()
    finally:
        configure_nvidia(box.host, gpus=2)


def test_without_nvidia_smi_holders_are_found_and_freed(box: Freeing) -> None:
    box.sh("mv /usr/bin/nvidia-smi /usr/bin/nvidia-smi.away")
    try:
        pid = box.hold("VLLM::Worker", user="bob")
        document = json.loads(box.ctl("holders", "--json"))
        assert [item["pid"] for item in document["holders"]] == [pid]
        assert document["gpus"] is None and "nvidia-smi: not installed" in document["reason"]
        assert "memory on the GPUs cannot be checked" in box.ctl(
            "free", "kimi", "--dry-run", "--policy", "engines"
        )
        assert [one["pid"] for one in box.free("--policy", "engines")["ended"]] == [pid]
    finally:
        box.sh("mv /usr/bin/nvidia-smi.away /usr/bin/nvidia-smi")


def test_a_driver_that_does_not_answer_is_a_reason(box: Freeing) -> None:
    configure_nvidia(box.host, gpus=2, fail="driver")
    try:
        document = json.loads(box.ctl("holders", "--json"))
        assert "couldn't communicate with the NVIDIA driver" in document["reason"]
    finally:
        configure_nvidia(box.host, gpus=2)


# Leftovers.


def test_the_port_of_a_stranger_is_listed_and_left(box: Freeing) -> None:
    box.host.exec("systemd-run", "--quiet", "--unit=other", "python3", "-m", "http.server", "8000")
    deadline = time.monotonic() + 10
    while not box.sh("ss -Hltn sport = :8000").strip():
        assert time.monotonic() < deadline
    result = box.free()
    (left,) = result["leftovers"]
    assert (left["kind"], left["what"], left["removed"]) == ("port", "8000", False)
    assert "other.service" in left["reason"]
    assert box.sh("ss -Hltn sport = :8000").strip()


# The probe, and an upgrade while it runs.


def test_the_probe_sees_it_all_from_standard_input_too(box: Freeing) -> None:
    vllm = box.start_vllm()
    request = {"engine_configs": [{**KIMI, "limits": {}}], "plan": ["kimi"], "users": ["vllm"]}
    done = subprocess.run(
        ["docker", "exec", "-i", box.host.name, "python3", "-I", "-", "probe", "--request",
         json.dumps(request)],
        input=program.loader(),
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )  # fmt: skip
    document = json.loads(done.stdout)
    assert document["program"] == program.digest()
    assert document["gpu_source"] == "nvidia-smi"
    assert [gpu["compute_capability"] for gpu in document["gpus"]] == ["12.0", "12.0"]
    assert document["systemd"]
    assert document["os"]["id"] == "debian"
    replaced = document["engines"]["kimi"]["replaces"]["vllm-kimi.service"]
    assert (replaced["ActiveState"], replaced["UnitFileState"]) == ("active", "enabled")
    classes = {item["pid"]: item["classes"]["kimi"]["class"] for item in document["holders"]}
    assert set(classes.values()) == {"replaced"} and set(classes) <= set(vllm)
    (step,) = document["plans"]["kimi"]["units_to_stop"]
    assert (step["unit"], step["class"], step["pids"]) == ("vllm-kimi.service", "replaced", vllm)
    (port,) = [item for item in document["listening"] if item["port"] == 8000]
    assert {owner["unit"] for owner in port["owners"]} == {"vllm-kimi.service"}


def test_an_upgrade_of_sglangctl_while_it_runs(box: Freeing) -> None:
    box.start_vllm("TimeoutStopSec=infinity", VLLM_STANDIN_IGNORE_TERM=1)
    running = subprocess.Popen(
        ["docker", "exec", box.host.name, "sglangctl", "free", "kimi"],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    try:
        time.sleep(1.5)  # it waits for the unit to stop; settling and leftovers are yet to come
        other = f"{program.FOLDER}/{'0' * 16}.pyz"
        box.install(b"#!/bin/sh\necho another version\n", other)
        box.sh(f"rm {program.path()}")
        said, _ = running.communicate(timeout=60)
        assert running.returncode == 0, said
        assert "free (vllm-kimi.service stopped" in said
    finally:
        if running.poll() is None:
            running.send_signal(signal.SIGKILL)
            running.wait()
        box.install(program.archive(), program.path())


# Containers, seen from the machine that runs Docker.


@pytest.fixture
def docked(host_prefix: str) -> Iterator[str]:
    """A plain container with a device of its own number, so that no other test is in the way.

    This machine has the same device: a path in somebody's container alone is no GPU.
    """
    device = Path("/dev/nvidia77")
    device.unlink(missing_ok=True)
    os.mknod(device, 0o666 | stat.S_IFCHR, os.makedev(1, 3))
    name = f"{host_prefix}-docked"
    script = "mknod -m 666 /dev/nvidia77 c 1 3; exec -a VLLM::Worker sleep 900 9<>/dev/nvidia77"
    subprocess.run(
        ["docker", "run", "--detach", "--rm=false", f"--name={name}", "--cap-add=MKNOD",
         "--restart=always", "--entrypoint=/bin/bash", images.tag("base"), "-c", script],
        check=True,
        capture_output=True,
    )  # fmt: skip
    try:
        yield name
    finally:
        subprocess.run(["docker", "rm", "--force", name], capture_output=True)
        device.unlink()


def on_this_machine(root: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """sglangctl from the checkout, as root, on the machine that runs Docker."""
    return subprocess.run(
        [sys.executable, "-m", "sglangctl", *arguments],
        cwd=ROOT,
        env={"PATH": "/usr/local/bin:/usr/bin:/bin", "SGLANGCTL_ROOT": str(root)},
        capture_output=True,
        text=True,
        timeout=60,
    )


def write_inventory(root: Path, containers: list[str]) -> None:
    folder = root / "etc/sglangctl/engines"
    folder.mkdir(parents=True, exist_ok=True)
    document = {**KIMI, "gpus": [77], "replaces": [], "port": 18099}
    (folder / "kimi.json").write_text(json.dumps(document))
    (root / "etc/sglangctl/host.json").write_text(json.dumps({"v": 1, "containers": containers}))


def test_a_holder_in_another_container(docked: str, tmp_path: Path) -> None:
    write_inventory(tmp_path, [])
    deadline = time.monotonic() + 15
    while True:
        done = on_this_machine(tmp_path, "holders", "--json", "--gpu", "77")
        found = json.loads(done.stdout)["holders"]
        if found:
            break
        assert time.monotonic() < deadline, done.stderr
        time.sleep(0.2)
    (item,) = found
    assert (item["container_name"], item["class"], item["gpus"]) == (docked, "engine", [77])
    assert item["container_engine"] == "docker"
    assert docked in on_this_machine(tmp_path, "holders", "--gpu", "77").stdout

    refused = on_this_machine(tmp_path, "free", "kimi")
    assert refused.returncode == 3
    assert f"`containers: [{docked}]` in the inventory, or on the host: " in refused.stdout
    assert "sglangctl free kimi --policy engines" in refused.stdout

    # Ended singly it comes back, and why is said.
    back = on_this_machine(tmp_path, "free", "kimi", "--policy", "engines")
    assert back.returncode == 1, back.stdout
    assert f"the container {docked} has the restart policy always" in back.stderr

    # Named in the inventory it is stopped through its engine, and stays down.
    write_inventory(tmp_path, [docked])
    done = on_this_machine(tmp_path, "free", "kimi")
    assert done.returncode == 0, done.stdout + done.stderr
    assert f"container {docked}: stopped by docker" in done.stdout
    state = subprocess.run(
        ["docker", "inspect", "-f", "{{.State.Status}}", docked], capture_output=True, text=True
    )
    assert state.stdout.strip() == "exited"


def state(box: Freeing) -> str:
    """Everything that a dry run must not change: processes, units, files."""
    return box.sh(
        # Only what lives on: not this very shell, nor kernel-side journals.
        "ps -e -o pid=,lstart=,args= | grep -v -e 'ps -e' -e ' sh -c' -e grep -e sort -e sha256;"
        "systemctl list-unit-files --no-legend vllm-kimi.service 'sglang*' 'other*';"
        "systemctl show -p ActiveState,SubState,MainPID vllm-kimi.service;"
        "find /etc /opt/vllm /usr/local /var/lib/sglangctl -xdev -type f -not -path '*/__pycache__/*' -not -path '*/frees/*'"
        " -exec sha256sum {} + 2>/dev/null | sort"
    )
