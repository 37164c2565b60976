"""A day of an operator, on the stand-in engine: what restarts (by MainPID) and what the last screen says.

make test-real runs them.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.container.deploying import deploy, ssh_data, write_inventory
from tests.hosts.host import Host
from tests.hosts.say import ROOT
from tests.hosts.standins.install import install_into

pytestmark = [pytest.mark.container, pytest.mark.real, pytest.mark.timeout(900)]

LIMITS = {"sample_s": 0.5, "respawn_s": 1, "start_s": 60, "rank_stopped_s": 3, "rollback_s": 60}
ENGINE: dict[str, Any] = {
    "model": {"path": "/models/tiny"},
    "kernel": {"source": "none"},
    "install": {"pip_arguments": ["--no-index", "--find-links=/opt/standins/wheels"]},
    "readiness": {"limits": LIMITS},
}
CHAT: dict[str, Any] = {**ENGINE, "gpus": [0]}
EMBED: dict[str, Any] = {**ENGINE, "gpus": [1], "port": 30001}
UNITS = "/etc/systemd/system"


class Day:
    """The host, and the folder of its inventory."""

    def __init__(self, host: Host, folder: Path) -> None:
        self.host, self.folder = host, folder

    def wants(self, prune: str = "ask", **engines: dict[str, Any]) -> Path:
        section = {"ssh": ssh_data(self.host), "prune": prune, "engines": engines}
        return write_inventory(self.folder / "hosts.yml", {self.host.ip: section})

    def deploys(self, *arguments: str, prune: str = "ask", **engines: dict[str, Any]) -> str:
        done = deploy(self.wants(prune, **engines), "-y", *arguments)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout + done.stderr

    def fails(self, **engines: dict[str, Any]) -> dict[str, str]:
        """The last screen of a deploy that fails: its four lines by their names."""
        done = deploy(self.wants(**engines), "-y")
        said = done.stdout + done.stderr
        assert done.returncode == 1, said
        last = said.partition(f"--> {self.host.ip} failed")[2].splitlines()
        names = ("what failed", "serves now", "way back", "evidence")
        found = {
            name: line.partition(":")[2].strip()
            for line in last
            for name in names
            if line.strip().startswith(f"{name}:")
        }
        assert tuple(found) == names, said
        return found

    def asks(self, command: str, *arguments: str, **wanted: Any) -> dict[str, Any]:
        """The document of sglang-plan or sglang-verify --json: its only host, and its exit status."""
        code = f"import sys; from roles.entry.{command} import main; sys.exit(main())"
        done = subprocess.run(
            [sys.executable, "-c", code, "--json", *arguments],
            cwd=ROOT,
            env={
                **os.environ,
                "SGLANG_INVENTORY": str(self.wants(**wanted)),
                "SGLANG_REPORTS": str(self.folder / "reports"),
                "PYINFRA_PROGRESS": "off",
            },
            capture_output=True,
            text=True,
            timeout=300,
        )
        document = json.loads(done.stdout)
        assert document["status"] == done.returncode
        (host,) = document[command]
        assert host["host"] == self.host.ip
        return {**host, "status": done.returncode}

    def plan(self, *arguments: str, **wanted: Any) -> dict[str, Any]:
        """Of sglang-plan --json: each engine by its name, and the exit status."""
        found = self.asks("plan", *arguments, **wanted)
        return {"status": found["status"], **{one["engine"]: one for one in found["engines"]}}

    def show(self, unit: str, name: str) -> str:
        return self.host.exec("systemctl", "show", "-p", name, "--value", "--", unit).stdout.strip()

    def pid(self, engine: str) -> str:
        found = self.show(f"sglang-{engine}.service", "MainPID")
        assert found not in ("", "0"), f"{engine} does not run"
        return found

    def status(self) -> str:
        return self.host.exec("sglangctl", "status", check=False).stdout

    def until(self, command: str) -> None:
        """Wait until a shell command succeeds on the host."""
        wait = f"until {command} >/dev/null 2>&1; do sleep 0.5; done"
        self.host.exec("timeout", "90", "sh", "-c", wait)


@pytest.fixture(scope="module")
def day(module_host_factory: Any, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Day]:
    host = module_host_factory("day", gpus=2)
    install_into(host)
    made = Day(host, tmp_path_factory.mktemp("day"))
    made.deploys(chat=CHAT)
    pid, plan = made.pid("chat"), made.plan(chat=CHAT, embed=EMBED)
    assert [plan[name]["action"] for name in ("chat", "embed")] == ["stays", "START"]
    made.deploys(chat=CHAT, embed=EMBED)
    assert made.pid("chat") == pid and made.pid("embed"), "a second engine beside the first"
    yield made


def test_cron_gets_documents(day: Day) -> None:
    found = day.asks("verify", chat=CHAT, embed=EMBED)
    assert (found["status"], found["outcome"]) == (0, "ok")
    assert {one["engine"]: one["outcome"] for one in found["engines"]} == {
        "chat": "ready",
        "embed": "ready",
    }
    assert len(list((day.folder / "reports").glob("*/report.json"))) == 2, "the plan's and its own"
    assert day.asks("plan", chat=CHAT, embed=EMBED)["status"] == 0


def test_what_is_broken_by_hand_is_put_right_while_the_engines_run(day: Day) -> None:
    pids = day.pid("chat"), day.pid("embed")
    unit = f"{UNITS}/sglang-chat.service"
    day.host.exec(
        "sh", "-c",
        "systemctl disable sglang-chat.service; "
        "chmod 0777 /var/lib/sglangctl/chat/current/nccl.env; "
        f"sed -i 's/^RestartSec=.*/RestartSec=77/' {unit}; "
        "rm /etc/tmpfiles.d/sglang-chat.conf; "
        "rm -r /var/log/sglang/chat; "
        "systemctl stop sglang-watch@embed.service; "
        "echo '{}' > /etc/sglangctl/host.json; "
        "chmod 0600 /etc/logrotate.d/sglang-embed; "
        f"mkdir -p {UNITS}/sglang-embed.service.d; "
        f"printf '[Service]\\nNice=1\\n' > {UNITS}/sglang-embed.service.d/colleague.conf; "
        "systemctl daemon-reload",
    )  # fmt: skip
    logs = day.host.exec("sglangctl", "logs", "chat", check=False)
    assert logs.returncode == 0 and "was deleted while the engine runs" in logs.stderr, logs
    plan = day.plan(chat=CHAT, embed=EMBED)
    assert plan["status"] == 2
    assert [plan[name]["action"] for name in ("chat", "embed")] == ["REPAIR", "REPAIR"]
    assert any("colleague.conf" in note for note in plan["embed"]["notes"])
    day.deploys(chat=CHAT, embed=EMBED)
    assert (day.pid("chat"), day.pid("embed")) == pids
    assert day.show("sglang-chat.service", "UnitFileState") == "enabled"
    assert day.show("sglang-chat.service", "RestartUSec") != "1min 17s"
    assert day.show("sglang-watch@embed.service", "ActiveState") == "active"
    day.host.exec("rm", "-r", f"{UNITS}/sglang-embed.service.d")
    day.host.exec("systemctl", "daemon-reload")
    assert day.plan(chat=CHAT, embed=EMBED)["status"] == 0


def test_what_the_process_has_read_is_put_right_with_a_restart_of_its_own(day: Day) -> None:
    live = "/var/lib/sglangctl/chat/current"
    for spoil in (f"echo 'log-level: debug' >> {live}/engine.yaml", f"rm {live}/nccl.env"):
        pids = day.pid("chat"), day.pid("embed")
        day.host.exec("sh", "-c", spoil)
        plan = day.plan(chat=CHAT, embed=EMBED)
        assert [plan[name]["action"] for name in ("chat", "embed")] == ["RESTART", "stays"], spoil
        day.deploys(chat=CHAT, embed=EMBED)
        assert day.pid("chat") != pids[0] and day.pid("embed") == pids[1], spoil


def test_an_engine_that_was_started_by_hand_is_named_and_left(day: Day) -> None:
    pids = day.pid("chat"), day.pid("embed")
    venv = day.host.exec("sh", "-c", "ls -d /opt/sglang/venvs/*").stdout.split()[0]
    by_hand = f"{venv}/bin/python -m sglang.launch_server --model-path /models/tiny --port 30077"
    begin = f"setsid sh -c 'echo $$ >/run/by-hand; CUDA_VISIBLE_DEVICES=0 exec {by_hand}'"
    day.host.exec("sh", "-c", f"{begin} </dev/null >/run/by-hand.log 2>&1 &")
    try:
        day.until("curl -sf http://127.0.0.1:30077/health")
        notes = day.plan(chat=CHAT, embed=EMBED)["chat"]["notes"]
        assert any("is on its GPUs too" in note and ": kill " in note for note in notes), notes
        day.host.exec("systemctl", "stop", "sglang-chat.service")
        last = day.fails(chat=CHAT, embed=EMBED)
        assert "launch_serv" in last["what failed"] and "nothing was changed" in last["serves now"]
        assert "sglangctl free chat --policy engines, then: " in last["way back"]
    finally:
        day.host.exec("bash", "-c", "kill -9 -- -$(cat /run/by-hand)")
    day.deploys(chat=CHAT, embed=EMBED)
    assert day.pid("chat") != pids[0] and day.pid("embed") == pids[1]


def test_a_damaged_shard_stops_the_next_start_and_is_named(day: Day) -> None:
    shard = day.host.exec("sh", "-c", "ls /models/tiny/*.safetensors").stdout.split()[0]
    day.host.exec("sh", "-c", f"cp {shard} /root/kept && truncate -s 5000 {shard}")
    try:
        day.host.exec("kill", "-9", day.pid("chat"))
        day.until(f"sh -c 'sglangctl status chat | grep -q {shard}'")
        last = day.fails(chat=CHAT, embed=EMBED)
        assert shard in last["what failed"] and "nothing was changed" in last["serves now"], last
    finally:
        day.host.exec("cp", "/root/kept", shard)
    day.host.exec("systemctl", "reset-failed", "sglang-chat.service")
    day.host.exec("systemctl", "start", "sglang-chat.service")
    assert day.pid("chat")


def test_a_stopped_process_has_its_command_in_the_status(day: Day) -> None:
    find = "pgrep -u sglang-chat -f sglang::scheduler | head -n 1"
    rank = day.host.exec("sh", "-c", find).stdout.strip()
    day.host.exec("kill", "-STOP", rank)
    day.until(f"sh -c 'sglangctl status chat | grep -q \"kill -CONT {rank}$\"'")
    assert "rank-stopped" in day.status()
    day.host.exec("kill", "-CONT", rank)
    day.until("sglangctl status")


def test_a_deploy_that_must_not_restart_says_what_is_due(day: Day) -> None:
    pids = day.pid("chat"), day.pid("embed")
    flags = {**CHAT, "flags": {"max-total-tokens": 4096}}
    plan = day.plan("--data", "restart=never", chat=flags, embed=EMBED)
    assert plan["status"] == 2 and plan["chat"]["action"] == "DUE"
    assert plan["chat"]["reasons"][0].startswith("max-total-tokens 4096")
    assert "is due" in day.deploys("--data", "restart=never", chat=flags, embed=EMBED)
    assert (day.pid("chat"), day.pid("embed")) == pids


def test_one_change_restarts_one_engine(day: Day) -> None:
    """A flag, the port, the model's name, its path; and the way back to the release before."""
    day.host.exec("cp", "-a", "/models/tiny", "/models/moved")
    for change in (
        {"flags": {"max-total-tokens": 2048}},
        {"port": 30010},
        {"model": {"path": "/models/tiny", "served_name": "other"}},
        {"model": {"path": "/models/moved"}},
    ):
        pids = day.pid("chat"), day.pid("embed")
        day.deploys(chat={**CHAT, **change}, embed=EMBED)
        assert day.pid("chat") != pids[0] and day.pid("embed") == pids[1], change
    pids = day.pid("chat"), day.pid("embed")
    day.host.exec("sglangctl", "rollback", "chat")
    assert day.pid("chat") != pids[0] and day.pid("embed") == pids[1]
    assert "other" in day.status(), "the model's name before"
    day.deploys(chat=CHAT, embed=EMBED)


def test_a_longer_time_limit_restarts_nothing(day: Day) -> None:
    pids = day.pid("chat"), day.pid("embed")
    limits = {"limits": {**LIMITS, "start_s": 61}}
    longer = {**CHAT, "readiness": limits}
    assert day.plan(chat=longer, embed=EMBED)["chat"]["action"] == "REPAIR"
    day.deploys(chat=longer, embed=EMBED)
    assert (day.pid("chat"), day.pid("embed")) == pids
    assert day.show("sglang-chat.service", "NeedDaemonReload") == "no"
    assert day.plan(chat=longer, embed=EMBED)["status"] == 0
    day.deploys(chat=CHAT, embed=EMBED)
    assert (day.pid("chat"), day.pid("embed")) == pids


def test_three_bad_deploys_and_the_way_back(day: Day) -> None:
    pid = day.pid("embed")
    fault = {**CHAT, "environment": {"STANDIN_FAULT": "gpu-out-of-memory"}}
    last = day.fails(chat=fault, embed=EMBED)
    assert (
        "gpu-out-of-memory" in last["what failed"] and "CUDA out of memory" in last["what failed"]
    )
    assert "chat since " in last["serves now"] and "embed since " in last["serves now"]
    assert "every engine serves" in last["way back"] and "report.json" in last["evidence"]
    # A value that the inventory does not know of this version, and its own parser does.
    chat = day.pid("chat")
    wrong = {**CHAT, "version": "0.5.9", "flags": {"attention-backend": "fa9"}}
    last = day.fails(chat=wrong, embed=EMBED)
    assert "argument --attention-backend: invalid choice: 'fa9'" in last["what failed"]
    assert day.pid("chat") == chat
    last = day.fails(chat={**CHAT, "model": {"path": "/models/none"}}, embed=EMBED)
    assert "/models/none" in last["what failed"] and "nothing was changed" in last["serves now"]
    day.host.exec(
        "systemd-run", "--unit=other-server", "--collect", "python3", "-m", "http.server", "30020"
    )
    try:
        last = day.fails(chat={**CHAT, "port": 30020}, embed=EMBED)
    finally:
        day.host.exec("systemctl", "stop", "other-server.service")
    assert "port 30020 is held by python3" in last["what failed"]
    assert day.pid("embed") == pid, "another engine's failure is none of its"
    day.host.exec("sglangctl", "stop", "chat", timeout=120)
    last = day.fails(chat={**CHAT, "model": {"path": "/models/none"}}, embed=EMBED)
    assert "nothing was changed; chat was down already" in last["serves now"]
    assert "none is needed" not in last["way back"]
    assert day.plan(chat=CHAT, embed=EMBED)["status"] in (0, 2)
    day.deploys(chat=CHAT, embed=EMBED)


def test_a_new_name_is_one_restart_and_takes_everything_along(day: Day) -> None:
    pid = day.pid("embed")
    day.host.exec("sh", "-c", "echo compiled > /var/cache/sglang/chat/kernel")
    talk = {**CHAT, "was": "chat"}
    plan = day.plan(talk=talk, embed=EMBED)
    assert (plan["talk"]["action"], plan["chat"]["action"]) == ("RESTART", "REMOVE")
    day.deploys(talk=talk, embed=EMBED)
    assert day.pid("talk") and day.pid("embed") == pid
    owner = day.host.exec("stat", "-c", "%U", "/var/cache/sglang/talk/kernel").stdout.strip()
    assert owner == "sglang-talk"
    gone = "test ! -e /etc/sglangctl/engines/chat.json -a ! -e /var/lib/sglangctl/chat"
    day.host.exec("sh", "-c", gone)
    assert len(day.host.exec("sglangctl", "journal", "talk", "--list").stdout.splitlines()) > 1
    assert day.plan(talk=talk, embed=EMBED)["status"] == 0
    day.deploys(chat={**CHAT, "was": "talk"}, embed=EMBED)


def test_a_new_name_that_fails_leaves_the_old_one_serving(day: Day) -> None:
    fault = {**CHAT, "was": "chat", "environment": {"STANDIN_FAULT": "gpu-out-of-memory"}}
    last = day.fails(talk=fault, embed=EMBED)
    assert "sglang-chat.service serves again" in last["serves now"]
    assert day.pid("chat")
    day.host.exec("sglangctl", "remove", "talk")
    day.deploys(chat=CHAT, embed=EMBED)


def test_who_left_the_inventory_is_left_named_and_removed_when_told(day: Day) -> None:
    pid = day.pid("embed")
    plan = day.plan(chat=CHAT)
    assert plan["embed"]["action"] == "LEFT"
    assert plan["embed"]["command"].endswith(f"--data engine=embed --limit {day.host.ip}")
    assert "--data engine=embed" in day.deploys(chat=CHAT) and day.pid("embed") == pid
    # A new one needs its GPU: the refusal names the two ways, and no third that is refused too.
    other = {**ENGINE, "gpus": [1], "port": 30002}
    last = day.fails(chat=CHAT, other=other)
    assert "nothing was changed" in last["serves now"] and day.pid("embed") == pid
    assert day.plan(prune="yes", chat=CHAT, other=other)["embed"]["action"] == "REMOVE"
    day.deploys("--data", "prune=yes", chat=CHAT, other=other)
    assert day.pid("other") and "embed" not in day.status()
    assert day.plan(chat=CHAT, other=other)["status"] == 0
