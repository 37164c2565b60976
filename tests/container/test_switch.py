"""The switch and its neighbours on the stand-in engine: what needs many starts.

A vLLM service that runs before, bad inventories, one bad host among three, stop, remove, the exit
statuses of sglang-verify, an engine that dies in every start.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import requests
import yaml

from tests.container.deploying import (
    changed,
    deploy,
    filesystem,
    pending,
    ssh_data,
    write_inventory,
)
from tests.hosts.host import Host
from tests.hosts.say import ROOT
from tests.hosts.standins.install import install_into, vllm_settings

pytestmark = [pytest.mark.container, pytest.mark.timeout(300)]

PLANTED = "sk-planted-0123456789-do-not-show"
MODEL = "/models/tiny"
ENGINE: dict[str, Any] = {
    "model": {"path": MODEL},
    "listen": "0.0.0.0",
    "gpus": [0, 1],
    "kernel": {"source": "none"},
    "tensor_parallel": 2,
    "install": {"pip_arguments": ["--no-index", "--find-links=/opt/standins/wheels"]},
    "readiness": {"limits": {"sample_s": 0.5, "respawn_s": 1, "start_s": 60}},
}


CONFIGURED = (
    "find /etc /opt /usr/local /var/lib/sglangctl/*/releases -type f -printf '%p %T@\n' | sort"
)


@pytest.fixture(scope="module")
def host(module_host_factory: Any) -> Iterator[Host]:
    made = module_host_factory("standin", gpus=2)
    install_into(made)
    yield made


@pytest.fixture
def inventory(host: Host, tmp_path: Path) -> Path:
    return inventory_of(tmp_path, {host.ip: (host, ENGINE)})


def inventory_of(folder: Path, hosts: dict[str, tuple[Host, dict[str, Any]]]) -> Path:
    return write_inventory(
        folder / "hosts.yml",
        {
            name: {
                "ssh": {**ssh_data(host), "hostname": host.ip},
                "engines": {"chat": engine},
            }
            for name, (host, engine) in hosts.items()
        },
    )


def verify(inventory: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", "from roles.entry.verify import main; raise SystemExit(main())"],
        cwd=ROOT,
        env={**os.environ, "SGLANG_INVENTORY": str(inventory)},
        capture_output=True,
        text=True,
        timeout=120,
    )


def text_of(done: subprocess.CompletedProcess[str]) -> str:
    return done.stdout + done.stderr


def show(host: Host, unit: str, name: str) -> str:
    return host.exec("systemctl", "show", "-p", name, "--value", "--", unit).stdout.strip()


def wait_for(host: Host, condition: str, seconds: int = 60) -> None:
    """Until the shell command succeeds on the host."""
    loop = f"until {condition}; do sleep 0.2; done"
    host.exec("timeout", str(seconds), "sh", "-c", loop)


def holders_of(host: Host, device: str) -> list[str]:
    done = host.exec("sh", "-c", f"fuser {device} 2>/dev/null", check=False)
    return done.stdout.split()


def test_a_dry_run_against_a_bare_host_shows_everything_and_changes_nothing(
    host: Host, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TEST_ENGINE_KEY", PLANTED)
    engine = {**ENGINE, "api_key": {"env": "TEST_ENGINE_KEY"}}
    inventory = inventory_of(tmp_path, {host.ip: (host, engine)})
    before = filesystem(host)
    done = deploy(inventory, "--dry", "--diff")
    assert done.returncode == 0, text_of(done)
    after = filesystem(host)
    assert len(before) > 1000
    assert sorted(set(after) - set(before)) == []
    assert sorted(set(before) - set(after)) == []
    for line in (
        "+ExecStartPost=/usr/local/bin/sglangctl wait chat",
        f'+model-path: "{MODEL}"',
        "+api-key: ***",
        '+  "name": "chat",',
        "user sglang-chat: new",
        "restart of chat: no release is live yet",
    ):
        assert line in text_of(done), line
    for operation in ("sglangctl", "configuration", "user", "packages", "release", "live release"):
        assert operation in text_of(done)
    assert PLANTED not in text_of(done)


def test_a_running_vllm_is_taken_over_from(host: Host, inventory: Path, tmp_path: Path) -> None:
    host.exec("tee", "/etc/default/vllm-kimi", input=vllm_settings(GPUS=2))
    # As people write it who were bitten by a slow stop: then a dead parent leaves its children.
    folder = "/etc/systemd/system/vllm-kimi.service.d"
    host.exec("mkdir", "-p", folder)
    host.exec("tee", f"{folder}/kill.conf", input="[Service]\nKillMode=process\nRestart=no\n")
    host.exec("systemctl", "daemon-reload")
    host.exec("systemctl", "enable", "--now", "vllm-kimi.service")
    wait_for(host, "ps -eo args | grep -q '^VLLM::Worker_TP1' && fuser -s /dev/nvidia1")
    main = show(host, "vllm-kimi.service", "MainPID")
    host.exec("kill", "-9", main)  # the seeds' way: its children survive and hold the device
    assert holders_of(host, "/dev/nvidia0")
    with_vllm = {**ENGINE, "replaces": ["vllm-kimi.service"]}
    inventory = inventory_of(tmp_path, {host.ip: (host, with_vllm)})
    dry = deploy(inventory, "--dry")
    assert dry.returncode == 0, text_of(dry)
    assert "vllm-kimi.service" in text_of(dry)
    assert "VLLM::EngineCore" in text_of(dry)
    assert holders_of(host, "/dev/nvidia0"), "a dry run ended something"
    done = deploy(inventory, "-y")
    assert done.returncode == 0, text_of(done)
    assert show(host, "vllm-kimi.service", "ActiveState") in ("inactive", "failed")
    assert show(host, "vllm-kimi.service", "UnitFileState") == "disabled"
    titles = host.exec("ps", "-eo", "args").stdout
    assert "VLLM::" not in titles
    assert "sglang::scheduler_TP1" in titles
    answer = requests.get(f"http://{host.ip}:30000/v1/models", timeout=10)
    assert answer.json()["data"][0]["id"] == "tiny"
    state = host.exec("cat", "/var/lib/sglangctl/chat/state.json").stdout
    assert '"vllm-kimi.service"' in state
    assert pending(inventory) == {}


def test_second_deploy_changes_nothing(host: Host, inventory: Path) -> None:
    assert deploy(inventory, "-y").returncode == 0
    main = show(host, "sglang-chat.service", "MainPID")
    done = deploy(inventory, "-y", "--json")
    assert done.returncode == 0, text_of(done)
    assert changed(done) == {}
    assert show(host, "sglang-chat.service", "MainPID") == main


def test_a_folder_that_was_deleted_beside_its_engine_is_told(host: Host, inventory: Path) -> None:
    home, away = "/var/lib/sglangctl/chat", "/var/lib/away"
    host.exec("mv", home, away)
    try:
        status = host.exec("sglangctl", "status", "chat", check=False)
        plan = text_of(deploy(inventory, "--dry"))
    finally:
        host.exec("sh", "-c", f"rm -rf {home} && mv {away} {home}")
    assert status.returncode == 2
    assert "systemctl restart sglang-watch@chat.service" in status.stdout
    assert "restart of chat: it runs, and its release is not recorded any more" in plan
    assert "nothing to go back to, it runs, and its release is not recorded any more" in plan


def test_verify_exit_statuses(host: Host, inventory: Path, tmp_path: Path) -> None:
    ready = verify(inventory)
    assert ready.returncode == 0, text_of(ready)
    host.exec("systemctl", "stop", "sglang-chat.service")
    stopped = verify(inventory)
    assert stopped.returncode == 1, text_of(stopped)
    gone = inventory_of(tmp_path, {"gone": (host, ENGINE)})
    document = yaml.safe_load(gone.read_text())
    document["hosts"]["gone"]["ssh"]["port"] = 9
    gone.write_text(yaml.safe_dump(document))
    unreachable = verify(gone)
    assert unreachable.returncode == 2, text_of(unreachable)


def test_a_stopped_unit_is_started_again_with_its_reason(host: Host, inventory: Path) -> None:
    host.exec("systemctl", "stop", "sglang-chat.service")
    dry = deploy(inventory, "--dry")
    # SGLang ends itself with SIGKILL when it is stopped: systemd calls that failed.
    assert "restart of chat: the unit is failed" in text_of(dry), text_of(dry)
    done = deploy(inventory, "-y")
    assert done.returncode == 0, text_of(done)
    assert show(host, "sglang-chat.service", "ActiveState") == "active"


def test_an_edited_unit_is_put_right(host: Host, inventory: Path) -> None:
    unit = "/etc/systemd/system/sglang-chat.service"
    edit = "sed -i -e 's/^RestartSec=.*/RestartSec=77/' -e '$a# edited' {}; chmod 666 {}"
    host.exec("sh", "-c", edit.format(unit, unit))
    main = show(host, "sglang-chat.service", "MainPID")
    dry = text_of(deploy(inventory, "--dry"))
    assert "was edited" in dry and "REPAIR" in dry and "RESTART" not in dry, dry
    assert deploy(inventory, "-y").returncode == 0
    assert show(host, "sglang-chat.service", "MainPID") == main, "restarted for what it never read"
    assert show(host, "sglang-chat.service", "NeedDaemonReload") == "no"
    assert "# edited" not in host.exec("cat", unit).stdout
    assert host.exec("stat", "-c", "%a", unit).stdout.strip() == "644"
    assert pending(inventory) == {}
    host.exec("sed", "-i", "s/^LimitNOFILE=.*/LimitNOFILE=77/", unit)
    assert "RESTART" in text_of(deploy(inventory, "--dry"))
    assert deploy(inventory, "-y").returncode == 0
    assert show(host, "sglang-chat.service", "MainPID") != main
    assert pending(inventory) == {}


def test_a_live_release_that_was_edited_is_put_right(host: Host, inventory: Path) -> None:
    file = "/var/lib/sglangctl/chat/current/nccl.env"
    host.exec("sh", "-c", f"echo 'NCCL_DEBUG=INFO' >> {file}")
    assert "nccl.env of the live release was edited" in text_of(deploy(inventory, "--dry"))
    assert deploy(inventory, "-y").returncode == 0
    assert "NCCL_DEBUG" not in host.exec("cat", file).stdout
    assert pending(inventory) == {}


def test_weights_that_are_not_there_leave_what_runs_alone(host: Host, tmp_path: Path) -> None:
    main = show(host, "sglang-chat.service", "MainPID")
    typo = {**ENGINE, "model": {"path": "/models/tyni"}}
    done = deploy(inventory_of(tmp_path, {host.ip: (host, typo)}), "-y")
    assert done.returncode == 1, text_of(done)
    assert "/models/tyni is not on the host" in text_of(done)
    assert MODEL in host.exec("cat", "/etc/sglangctl/engines/chat.json").stdout
    assert show(host, "sglang-chat.service", "MainPID") == main


def test_a_unit_of_somebody_else_is_never_overwritten(host: Host, tmp_path: Path) -> None:
    unit = "/etc/systemd/system/sglang-mine.service"
    host.exec("tee", unit, input="[Service]\nExecStart=/bin/sleep 99\n")
    section = {"ssh": ssh_data(host), "engines": {"mine": {**ENGINE, "port": 30001}}}
    inventory = write_inventory(tmp_path / "hosts.yml", {host.ip: section})
    for script in ("sglang", "remove"):
        done = deploy(inventory, "-y", script=script)
        assert done.returncode == 1, text_of(done)
        assert "not made by sglang-provision" in text_of(done), text_of(done)
        assert "sleep 99" in host.exec("cat", unit).stdout
    host.exec("rm", unit)
    assert deploy(inventory, "-y", script="remove").returncode == 0


def test_one_bad_host_among_three_fails_alone(host: Host, tmp_path: Path) -> None:
    document = {
        "a-wrong": (host, {**ENGINE, "prot": 8000}),
        "b-good": (host, {**ENGINE, "environment": {"AMONG": "three"}}),
        "c-unreachable": (host, ENGINE),
    }
    inventory = inventory_of(tmp_path, document)
    text = yaml.safe_load(inventory.read_text())
    text["hosts"]["c-unreachable"]["ssh"]["port"] = 9
    inventory.write_text(yaml.safe_dump(text))
    done = deploy(inventory, "-y")
    assert done.returncode == 1, text_of(done)
    assert "did you mean" in text_of(done).lower()
    assert "[c-unreachable]" in text_of(done)
    main = show(host, "sglang-chat.service", "MainPID")
    environment = host.exec("cat", f"/proc/{main}/environ").stdout.split("\0")
    assert "AMONG=three" in environment, "the good host was not deployed to"


@pytest.mark.parametrize("example", ["minimal", "kimi-8x-rtx-pro-6000"])
def test_the_examples_deploy_in_dry_mode(host: Host, tmp_path: Path, example: str) -> None:
    document = yaml.safe_load((ROOT / f"inventory/{example}.example.yml").read_text())
    for section in document["hosts"].values():
        section["ssh"] = {**ssh_data(host), "hostname": host.ip}
    inventory = tmp_path / "hosts.yml"
    inventory.write_text(yaml.safe_dump(document))
    done = deploy(inventory, "--dry", "--diff")
    assert done.returncode == 0, text_of(done)
    assert "ExecStartPost=/usr/local/bin/sglangctl wait" in text_of(done)
    if example.startswith("kimi"):
        for line in (
            "+speculative-num-draft-tokens: 4",
            "+mem-fraction-static: 0.85",
            '+NCCL_P2P_LEVEL="SYS"',
            '+attention-backend: "flashinfer"',
        ):
            assert line in text_of(done), line


@pytest.mark.parametrize(
    ("engine", "words"),
    [
        ({"prot": 8000}, ["prot", "port"]),
        ({"port": 70000}, ["70000", "65535"]),
        ({"replaces": ["a/b.service"]}, ["replaces", "a/b.service"]),
        ({"model": {"path": "/models/a\nb"}}, ["model", "path"]),
        ({"nccl": {"overrides": {"NCCL_P2P_LEVEL": "sys"}}}, ["NCCL_P2P_LEVEL", "SYS"]),
        ({"gpus": [0, 0]}, ["gpus"]),
    ],
)
def test_a_wrong_inventory_stops_before_anything_is_touched(
    host: Host, tmp_path: Path, engine: dict[str, Any], words: list[str]
) -> None:
    inventory = inventory_of(tmp_path, {host.ip: (host, {**ENGINE, **engine})})
    main = show(host, "sglang-chat.service", "MainPID")
    configured = host.exec("sh", "-c", CONFIGURED).stdout
    done = deploy(inventory, "-y")
    assert done.returncode == 1
    for word in words:
        assert word in text_of(done), text_of(done)
    assert show(host, "sglang-chat.service", "MainPID") == main
    assert host.exec("sh", "-c", CONFIGURED).stdout == configured


def test_what_cannot_come_to_its_end_is_not_begun(host: Host, tmp_path: Path) -> None:
    """Told at once, before a new environment is made for it."""
    install = {"pip_arguments": [*ENGINE["install"]["pip_arguments"], "--no-color"]}
    wrong = {**ENGINE, "model": {"path": "/models/gone"}, "port": 22, "install": install}
    inventory = inventory_of(tmp_path, {host.ip: (host, wrong)})
    before = host.exec("sh", "-c", f"{CONFIGURED}; ls /opt/sglang/venvs", check=False).stdout
    done = deploy(inventory, "-y")
    assert done.returncode == 1, text_of(done)
    assert "/models/gone is not on the host" in text_of(done)
    assert "port 22 is held by sshd" in text_of(done)
    assert "nothing was changed" in text_of(done)
    after = host.exec("sh", "-c", f"{CONFIGURED}; ls /opt/sglang/venvs", check=False).stdout
    assert after == before


def test_a_flag_that_looks_like_an_option_stays_a_value(host: Host, tmp_path: Path) -> None:
    flags = {"chat-template": "--help"}
    inventory = inventory_of(tmp_path, {host.ip: (host, {**ENGINE, "flags": flags})})
    done = deploy(inventory, "--dry", "--diff")
    assert done.returncode == 0, text_of(done)
    # In one word: in SGLang's --config it would become an option of its own.
    assert "--chat-template=--help" in text_of(done)


@pytest.mark.parametrize("way", ["docker", "sudo"])
def test_the_same_host_by_another_way(host: Host, tmp_path: Path, way: str) -> None:
    """pyinfra's @docker connector, and a login that needs sudo: the same job."""
    if way == "docker":
        name, section = f"@docker/{host.name}", {}
    else:
        name, section = host.ip, {"ssh": {**ssh_data(host), "user": "debian"}, "sudo": True}
    # One more variable: release, switch and readiness go this way too.
    engines = {"chat": {**ENGINE, "environment": {"WAY": way}}}
    inventory = write_inventory(tmp_path / "hosts.yml", {name: {**section, "engines": engines}})
    assert next(iter(pending(inventory).values())) == [name]
    done = deploy(inventory, "-y")
    assert done.returncode == 0, text_of(done)
    main = show(host, "sglang-chat.service", "MainPID")
    environment = host.exec("cat", f"/proc/{main}/environ").stdout.split("\0")
    assert f"WAY={way}" in environment
    assert pending(inventory) == {}


def test_stop_keeps_it_down_and_deploy_brings_it_back(
    host: Host, inventory: Path, tmp_path: Path
) -> None:
    assert deploy(inventory, "-y").returncode == 0
    # At night: the key is elsewhere, and somebody was in the middle of changing the inventory.
    lost = {**ENGINE, "prot": 1, "api_key": {"env": "NOT_SET"}, "flags": {"wobble": 1}}
    (tmp_path / "night").mkdir()
    inventory = inventory_of(tmp_path / "night", {host.ip: (host, lost)})
    main = show(host, "sglang-chat.service", "MainPID")
    dry = deploy(inventory, "--dry", script="stop")
    assert dry.returncode == 0, text_of(dry)
    for text in (
        "stop sglang-chat.service (ours; active, enabled",
        f"ends with it: {main} ",
        "disable sglang-chat.service (enabled)",
        "stop sglang-watch@chat.service (active, static)",
    ):
        assert text in text_of(dry), text_of(dry)
    assert show(host, "sglang-chat.service", "MainPID") == main
    done = deploy(inventory, "-y", script="stop")
    assert done.returncode == 0, text_of(done)
    assert holders_of(host, "/dev/nvidia0") == []
    host.reboot()
    assert show(host, "sglang-chat.service", "ActiveState") == "inactive"
    again = deploy(inventory, "-y", "--json", script="stop")
    assert changed(again) == {}
    inventory = inventory_of(tmp_path, {host.ip: (host, ENGINE)})
    assert deploy(inventory, "-y").returncode == 0
    assert show(host, "sglang-chat.service", "ActiveState") == "active"


def test_an_engine_that_dies_in_its_first_start_is_not_tried_again(
    host: Host, tmp_path: Path
) -> None:
    before = host.exec("readlink", "/var/lib/sglangctl/chat/current").stdout
    host.exec("mkdir", "-p", "/models/empty")
    known = {"ignore": ["weights-missing", "model-config", "tokenizer-missing"]}
    broken = {**ENGINE, "model": {"path": "/models/empty"}, "preflight": known}
    inventory = inventory_of(tmp_path, {host.ip: (host, broken)})
    done = deploy(inventory, "-y")
    assert done.returncode == 1, text_of(done)
    assert "next step" in text_of(done)
    assert "serves again" in text_of(done)
    assert host.exec("readlink", "/var/lib/sglangctl/chat/current").stdout == before
    listed = host.exec("sglangctl", "journal", "chat", "--list").stdout.splitlines()
    outcomes = [line.split()[1] for line in listed]
    assert outcomes[-2:] == ["failed", "ready"], outcomes


def test_remove_takes_everything_of_ours_and_nothing_else(host: Host, inventory: Path) -> None:
    assert deploy(inventory, "-y").returncode == 0
    dry = deploy(inventory, "--dry", script="remove")
    assert "stop sglang-chat.service (ours; active" in text_of(dry), text_of(dry)
    done = deploy(inventory, "-y", script="remove")
    assert done.returncode == 0, text_of(done)
    planned = set(re.findall(r"\] +remove (/\S+|user \S+)", text_of(dry)))
    assert planned == set(re.findall(r"\] +removed (/\S+|user \S+)", text_of(done)))
    assert {
        "/etc/systemd/system/sglang-chat.service",
        "user sglang-chat",
        "user sglang-build",
    } <= planned
    left = host.exec(
        "sh",
        "-c",
        "ls -d /etc/sglangctl /var/lib/sglangctl /var/log/sglang /var/cache/sglang /opt/sglang "
        "/usr/local/bin/sglangctl /usr/local/lib/sglangctl /etc/systemd/system/*sglang* "
        "/etc/tmpfiles.d/*sglang* /etc/logrotate.d/*sglang* 2>/dev/null; getent passwd sglang-chat sglang-build",
        check=False,
    ).stdout
    assert left == "", left
    assert host.exec("ls", MODEL).stdout
    assert show(host, "vllm-kimi.service", "LoadState") == "loaded"
    assert holders_of(host, "/dev/nvidia0") == []
    again = deploy(inventory, "-y", "--json", script="remove")
    assert again.returncode == 0, text_of(again)
    assert changed(again) == {}
