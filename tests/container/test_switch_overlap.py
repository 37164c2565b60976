"""Two deploys at once on the stand-in engine: the second one meets the lock, the first one goes
on; and what a slow stop and a wanted end look like meanwhile and afterwards."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.container.deploying import changed, deploy, pending, ssh_data, write_inventory
from tests.hosts.host import Host
from tests.hosts.say import ROOT
from tests.hosts.standins.install import install_into

pytestmark = [pytest.mark.container, pytest.mark.timeout(300)]

LIMITS = {"sample_s": 0.5, "respawn_s": 1, "start_s": 60}
ENGINE: dict[str, Any] = {
    "model": {"path": "/models/tiny"},
    "gpus": [0],
    "kernel": {"source": "none"},
    "install": {"pip_arguments": ["--no-index", "--find-links=/opt/standins/wheels"]},
    "readiness": {"limits": LIMITS},
}
CONFIG = "/etc/sglangctl/engines/chat.json"
SLOW = "/etc/systemd/system/sglang-chat.service.d"
SLOW_S = 22


@pytest.fixture(scope="module")
def host(module_host_factory: Any) -> Iterator[Host]:
    made = module_host_factory("overlap", gpus=1)
    install_into(made)
    yield made


def inventory_of(folder: Path, host: Host, name: str = "hosts", **more: Any) -> Path:
    section = {"ssh": ssh_data(host), "engines": {"chat": {**ENGINE, **more}}}
    return write_inventory(folder / f"{name}.yml", {host.ip: section})


def limited(**limits: Any) -> dict[str, Any]:
    return {"limits": {**LIMITS, **limits}}


def begin(inventory: Path) -> subprocess.Popen[str]:
    """A deploy that goes on while the test looks around."""
    return subprocess.Popen(
        [sys.executable, "-m", "pyinfra", "inventory.py", "deploys/sglang.py", "-y"],
        cwd=ROOT,
        env={**os.environ, "SGLANG_INVENTORY": str(inventory), "PYINFRA_PROGRESS": "off"},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def text_of(done: subprocess.CompletedProcess[str]) -> str:
    return done.stdout + done.stderr


def show(host: Host, unit: str, name: str) -> str:
    return host.exec("systemctl", "show", "-p", name, "--value", "--", unit).stdout.strip()


def wait_for(host: Host, condition: str, seconds: int = 60) -> None:
    loop = f"until {condition}; do sleep 0.2; done"
    host.exec("timeout", str(seconds), "sh", "-c", loop)


def config(host: Host) -> dict[str, Any]:
    document: dict[str, Any] = json.loads(host.exec("cat", CONFIG).stdout)
    return document


def make_slow(host: Host, seconds: int = SLOW_S) -> None:
    """A stop of the engine that takes its time: SGLang drains up to 120 s."""
    host.exec("mkdir", "-p", SLOW)
    host.exec("tee", f"{SLOW}/slow.conf", input=f"[Service]\nExecStop=/bin/sleep {seconds}\n")
    host.exec("systemctl", "daemon-reload")


def make_quick(host: Host) -> None:
    host.exec("rm", "-r", SLOW)
    host.exec("systemctl", "daemon-reload")


def test_a_refusal_is_said_once_with_a_command_that_works(host: Host, tmp_path: Path) -> None:
    host.exec("sh", "-c", "setsid sleep 600 </dev/nvidia0 >/dev/null 2>&1 &")
    inventory = inventory_of(tmp_path, host, replaces=["vllm-old.service"])
    refused = deploy(inventory, "-y")
    assert refused.returncode == 1, text_of(refused)
    hints = [line for line in text_of(refused).splitlines() if "allowed by: " in line]
    assert len(hints) == 1, text_of(refused)
    command = hints[0].split("allowed by: on the host: ")[1].split()
    assert command == ["sglangctl", "free", "chat", "--policy", "all"]
    dry = deploy(inventory, "--dry")
    assert dry.returncode == 0
    assert text_of(dry).count("allowed by: ") == 1, text_of(dry)
    note = "note: `replaces` of chat names vllm-old.service, and this host has no such unit"
    assert sum(note in line for line in text_of(dry).splitlines()) == 1, text_of(dry)
    host.exec(*command)
    assert deploy(inventory, "-y").returncode == 0
    assert pending(inventory) == {}


def test_a_second_deploy_meets_the_lock_and_the_first_goes_on(host: Host, tmp_path: Path) -> None:
    old = config(host)
    make_slow(host)
    first = inventory_of(
        tmp_path, host, "first", environment={"ROUND": "1"}, readiness=limited(start_s=61)
    )
    second = inventory_of(
        tmp_path, host, "second", environment={"ROUND": "2"}, readiness=limited(start_s=62)
    )
    running = begin(first)
    try:
        wait_for(host, """grep -q '"phase": "switching"' /var/lib/sglangctl/chat/state.json""")
        watch = show(host, "sglang-watch@chat.service", "MainPID")
        dry = deploy(second, "--dry")
        met = deploy(second, "-y")
        # The second one is over, the first one still waits for the slow stop.
        assert show(host, "sglangctl-switch.service", "ActiveState") == "active"
        assert config(host) == old, "a deploy that could not switch wrote the configuration"
        assert show(host, "sglang-watch@chat.service", "MainPID") == watch
        resumed = host.exec("sglangctl", "switch", "chat", "--resume", check=False)
    finally:
        said, _ = running.communicate(timeout=240)
    for who in (met, resumed):
        assert who.returncode == 1, text_of(who)
        sentence = next(line for line in text_of(who).splitlines() if "runs on this host" in line)
        for words in ("nothing was changed. a switch of chat to release", "(pid ", "since 20"):
            assert words in sentence
        assert "wait until it has ended" in sentence
    assert "was interrupted" not in text_of(met) + text_of(dry)
    assert "will fail: nothing was changed. a switch of chat" in text_of(dry)
    assert running.returncode == 0, said
    main = show(host, "sglang-chat.service", "MainPID")
    assert "ROUND=1" in host.exec("cat", f"/proc/{main}/environ").stdout.split("\0")
    assert config(host)["limits"]["start_s"] == 61
    # The slow stop was not silent on the operator's screen.
    beats = [
        line for line in said.splitlines() if "waiting for sglang-chat.service to stop" in line
    ]
    assert len(beats) == 2, said
    assert "10 s of at most 130 s" in beats[0]
    make_quick(host)
    assert pending(first) == {}


def test_what_a_switch_ended_reads_as_stopped_by_it(host: Host) -> None:
    listed = host.exec("sglangctl", "journal", "chat", "--list").stdout.splitlines()
    assert len(listed) == 2
    assert " stopped by a switch of chat to release " in listed[0], listed
    assert listed[1].endswith(" ready"), listed


def test_what_systemctl_stopped_is_no_failure(host: Host, tmp_path: Path) -> None:
    host.exec("systemctl", "stop", "sglang-chat.service")
    wait_for(host, "sglangctl journal chat --list | tail -n 1 | grep -q 'stopped by systemd'")
    said = host.exec("sglangctl", "status", "chat", check=False).stdout
    assert "chat: stopped by systemd (systemctl stop" in said, said
    assert "systemd calls it failed because SGLang ends itself by SIGKILL" in said
    assert "killed" not in said
    proof = deploy(inventory_of(tmp_path, host), "-y", script="verify")
    assert proof.returncode == 1
    assert "chat: stopped" in text_of(proof), text_of(proof)
    assert "it was stopped by systemd" in text_of(proof)
    assert "killed" not in text_of(proof)
    host.exec("systemctl", "start", "sglang-chat.service")


def test_what_sglangctl_stopped_names_it(host: Host) -> None:
    host.exec("sglangctl", "stop", "chat")
    assert (
        "chat: stopped by a stop of chat"
        in host.exec("sglangctl", "status", "chat", check=False).stdout
    )
    host.exec("systemctl", "enable", "--now", "sglang-chat.service")
    wait_for(host, "sglangctl journal chat --list | tail -n 1 | grep -q ' ready$'")


def test_a_changed_limit_alone_restarts_the_watch_and_not_the_engine(
    host: Host, tmp_path: Path
) -> None:
    main = show(host, "sglang-chat.service", "MainPID")
    watch = show(host, "sglang-watch@chat.service", "MainPID")
    inventory = inventory_of(
        tmp_path, host, environment={"ROUND": "1"}, readiness=limited(start_s=61, rank_stopped_s=63)
    )
    dry = deploy(inventory, "--dry", "--diff")
    assert '+    "rank_stopped_s": 63' in text_of(dry), text_of(dry)
    assert "restart of sglang-watch@chat.service: chat.json changed" in text_of(dry)
    assert "restart of chat" not in text_of(dry)
    assert config(host)["limits"]["rank_stopped_s"] == 30
    done = deploy(inventory, "-y", "--json")
    assert done.returncode == 0, text_of(done)
    assert "Switch | chat: configuration" in changed(done)
    assert config(host)["limits"]["rank_stopped_s"] == 63
    assert show(host, "sglang-chat.service", "MainPID") == main
    assert show(host, "sglang-watch@chat.service", "MainPID") not in (watch, "0")
    assert pending(inventory) == {}


def test_with_a_switch_the_configuration_is_shown_and_goes_live_with_it(
    host: Host, tmp_path: Path
) -> None:
    inventory = inventory_of(tmp_path, host, port=30007)
    dry = deploy(inventory, "--dry", "--diff")
    assert '+  "port": 30007,' in text_of(dry), text_of(dry)
    assert config(host)["port"] == 30000
    done = deploy(inventory, "-y", "--json")
    assert done.returncode == 0, text_of(done)
    assert set(changed(done)) == {
        "Engine | chat: release",
        "Switch | chat: live release",
        "Readiness | chat: serves",
    }
    assert config(host)["port"] == 30007
    assert pending(inventory) == {}


def test_a_killed_switch_goes_back_with_the_configuration_from_before(
    host: Host, tmp_path: Path
) -> None:
    make_slow(host)
    inventory = inventory_of(tmp_path, host, port=30008)
    running = begin(inventory)
    wait_for(host, """grep -q '"phase": "switching"' /var/lib/sglangctl/chat/state.json""")
    host.exec("systemctl", "kill", "--signal=SIGKILL", "sglangctl-switch.service")
    said, _ = running.communicate(timeout=120)
    assert running.returncode == 1, said
    assert "--resume" in said
    assert config(host)["port"] == 30007
    make_quick(host)
    assert "an earlier switch was interrupted" in text_of(deploy(inventory, "--dry"))
    host.exec("sglangctl", "switch", "chat", "--resume")
    assert show(host, "sglang-chat.service", "ActiveState") == "active"
    assert config(host)["port"] == 30007
    assert deploy(inventory, "-y").returncode == 0
    assert config(host)["port"] == 30008
    assert pending(inventory) == {}


def test_a_slow_stop_is_not_silent(host: Host, tmp_path: Path) -> None:
    make_slow(host, 14)
    inventory = inventory_of(tmp_path, host, port=30008)
    done = deploy(inventory, "-y", script="stop")
    assert done.returncode == 0, text_of(done)
    assert re.search(r"sglangctl stop chat: 1\d s", text_of(done)), text_of(done)
    assert "waiting for sglang-chat.service to stop (" in text_of(done)
    make_quick(host)
    assert deploy(inventory, "-y").returncode == 0


def test_what_was_switched_since_a_deploy_looked_is_left_alone(host: Host) -> None:
    main = show(host, "sglang-chat.service", "MainPID")
    live = host.exec("readlink", "/var/lib/sglangctl/chat/current").stdout.strip().split("/")[1]
    for command in (
        ("switch", "chat", f"--to={live}", "--config=-", "--seen=20200101T000000Z"),
        ("configure", "chat", "--seen=-"),
    ):
        done = host.exec("sglangctl", *command, input=json.dumps(config(host)), check=False)
        assert done.returncode == 1
        assert "nothing was changed. chat is not as it was" in done.stderr, done.stderr
        assert "deploy again" in done.stderr
    assert show(host, "sglang-chat.service", "MainPID") == main
