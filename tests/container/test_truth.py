"""The truth in the plan: what `sglang-plan` says is what a run does, and a plan changes nothing.

One host and one engine go through SITUATIONS in their order; what one leaves is where the next begins. Of
each: the plan leaves the host as it was, the run changes the operations of the plan and no other, the
engine is restarted exactly where the plan says so, what the plan ends is down, and everything else runs on.
"""

from __future__ import annotations

import copy
import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from roles.inventory.merge import deep_merge
from roles.report.choice import REPAIR, REPLACE, RESTART, START, STAYS
from tests.container.deploying import changed, deploy, ssh_data, write_inventory
from tests.hosts.host import Host
from tests.hosts.say import ROOT
from tests.hosts.standins.install import install_into, vllm_settings

pytestmark = [pytest.mark.container, pytest.mark.timeout(300)]

UNIT, WATCH, VLLM = "sglang-chat.service", "sglang-watch@chat.service", "vllm-kimi.service"
HOME = "/var/lib/sglangctl/chat"
FILE = f"/etc/systemd/system/{UNIT}"
CONFIG = "/etc/sglangctl/engines/chat.json"
BASE: dict[str, Any] = {
    "model": {"path": "/models/tiny"},
    "gpus": [0],
    "kernel": {"source": "none"},
    "replaces": [VLLM],
    "install": {"pip_arguments": ["--no-index", "--find-links=/opt/standins/wheels"]},
    "readiness": {"limits": {"sample_s": 0.5, "respawn_s": 1, "start_s": 60}},
}
RESTARTS = (START, RESTART, REPLACE)
FAILS = "fails"


@dataclass(frozen=True)
class Situation:
    """What is changed before a deploy, and the word that its plan must have for the engine."""

    name: str
    word: str
    engine: dict[str, Any] = field(default_factory=dict)
    """Merged over the engine from here on; None takes a key away."""
    done: Callable[[Host], Any] | str | None = None
    """On the host: a function, or a shell's command."""
    host: dict[str, Any] = field(default_factory=dict)
    """Keys of the host from here on."""
    undo: str | None = None
    """A shell's command after it: what the deploy refuses to touch."""
    short: bool = False
    """Also in `make test`."""


def vllm(host: Host) -> None:
    host.exec("tee", "/etc/default/vllm-kimi", input=vllm_settings(GPUS=1))
    host.exec("systemctl", "enable", "--now", VLLM)
    wait_for(host, "fuser -s 8000/tcp && fuser -s /dev/nvidia0")


def killed(host: Host) -> None:
    """A switch to another release is killed while its engine starts: nobody goes back."""
    done = f"""
      last=$(ls -t {HOME}/starts | head -1)
      sglangctl switch chat --to=$(basename $(readlink {HOME}/current)) --detach=20260101T000000Z-00
      until grep -q '"step": "following"' {HOME}/state.json; do sleep 0.1; done
      systemctl kill --signal=KILL sglangctl-switch.service
      while systemctl is-active -q sglangctl-switch.service; do sleep 0.1; done
      # Its watch writes until it serves, whoever else looks.
      while [ "$(ls -t {HOME}/starts | head -1)" = "$last" ]; do sleep 0.1; done
      sglangctl wait chat
    """
    host.exec("sh", "-c", done)


SITUATIONS = (
    Situation("nothing is there", START, short=True),
    Situation("nothing was changed", STAYS, short=True),
    # Changes of the inventory
    Situation("a variable", RESTART, {"environment": {"ROUND": "1"}}, short=True),
    Situation("a flag", RESTART, {"flags": {"max-running-requests": 8}}),
    Situation("a flag less", RESTART, {"flags": {"max-running-requests": None}}),
    Situation("an NCCL value", RESTART, {"nccl": {"overrides": {"NCCL_DEBUG": "WARN"}}}),
    Situation("an NCCL profile", RESTART, {"nccl": {"profile": "safe"}}),
    Situation("a port", RESTART, {"port": 30001}),
    Situation("a name", RESTART, {"model": {"served_name": "other"}}),
    Situation("a drafter", RESTART, {"drafter": {"path": "/models/tiny-eagle3"}}),
    Situation("no drafter", RESTART, {"drafter": None}),
    Situation("an api key", RESTART, {"api_key": {"file": "key"}}),
    Situation("the sandbox", RESTART, {"hardening": "strict"}),
    Situation("another environment", RESTART, {"install": {"pip_arguments": ["--no-color"]}}),
    Situation("a time limit", REPAIR, {"readiness": {"limits": {"stalled_flat_s": 290}}}),
    Situation("a fallback", REPAIR, {"fallbacks": {"less": {"nccl": {"profile": "none"}}}}),
    Situation("no way back", REPAIR, {"rollback": False}),
    Situation("a protected title", STAYS, host={"protected": ["agent"]}),
    # Drift: what somebody did on the host
    Situation("its unit: restarts", REPAIR, done=f"sed -i s/^RestartSec=.*/RestartSec=77/ {FILE}"),
    Situation("its unit: a limit", RESTART, done=f"sed -i s/^LimitNOFILE=.*/LimitNOFILE=77/ {FILE}"),
    Situation("its unit: gone", REPAIR, done=f"rm {FILE}"),
    Situation("its unit: disabled", REPAIR, done=f"systemctl disable {UNIT}", short=True),
    Situation("its unit: not read", REPAIR, done=f"touch {FILE}"),
    Situation("a value of the live release", RESTART, done=f"echo A=1 >> {HOME}/current/nccl.env"),
    Situation("a mode of the live release", REPAIR, done=f"chmod 600 {HOME}/current/nccl.env"),
    Situation("its configuration", REPAIR, done=f"sed -i s/290/280/ {CONFIG}"),
    Situation("its log's folder: gone", REPAIR, done="rm -r /var/log/sglang/chat"),
    Situation("its log's folder: open", REPAIR, done="chmod 777 /var/log/sglang/chat"),
    Situation("logrotate's file: gone", REPAIR, done="rm /etc/logrotate.d/sglang-chat"),
    Situation("the program: gone", STAYS, done="rm /usr/local/bin/sglangctl"),
    Situation("the watch: stopped", REPAIR, done=f"systemctl stop {WATCH}"),
    Situation("the engine: stopped", START, done=f"systemctl stop {UNIT}"),
    Situation("the engine: stopped by us", START, done="sglangctl stop chat"),
    Situation("what it replaces: enabled", REPAIR, done=f"systemctl enable {VLLM}"),
    Situation("what it replaces: runs", REPAIR, done=vllm),
    Situation("a switch that was killed", RESTART, done=killed),
    Situation("its weights: gone", FAILS, done="mv /models/tiny /models/away",
              undo="mv /models/away /models/tiny"),
)  # fmt: skip


@pytest.fixture(scope="module")
def host(module_host_factory: Any) -> Iterator[Host]:
    made = module_host_factory("truth", gpus=1)
    install_into(made, gpus=1)
    yield made


def wait_for(host: Host, condition: str, seconds: int = 60) -> None:
    host.exec("timeout", str(seconds), "sh", "-c", f"until {condition}; do sleep 0.2; done")


LOOK = """
find /etc /usr/local /opt/sglang /models /var/lib/sglangctl /var/cache/sglangctl /var/log/sglang \
  -path '*/starts/*' -prune -o -name '*.log*' -prune -o -printf '%p %y %m %U %G %T@ %s %l\\n' 2>/dev/null | sort
getent passwd | grep -c .
"""
SHOWN = ("ActiveState", "UnitFileState", "MainPID", "InvocationID", "NeedDaemonReload")


def files(host: Host) -> list[str]:
    """Of every file that is ours or the system's configuration: kind, rights, owner, time, size."""
    return host.exec("sh", "-c", LOOK).stdout.splitlines()


def units(host: Host) -> dict[str, dict[str, str]]:
    shown = {}
    for unit in (UNIT, WATCH, VLLM):
        names = [f"-p{name}" for name in SHOWN]
        lines = host.exec("systemctl", "show", *names, "--", unit).stdout.splitlines()
        shown[unit] = dict(line.split("=", 1) for line in lines)
    return shown


def plan_of(inventory: Path) -> dict[str, Any]:
    """`sglang-plan --json`, of the one host."""
    main = "from roles.entry.plan import main; raise SystemExit(main())"
    done = subprocess.run(
        [sys.executable, "-c", main, "--json"],
        cwd=ROOT,
        env={**os.environ, "SGLANG_INVENTORY": str(inventory), "PYINFRA_PROGRESS": "off"},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=120,
    )
    document = json.loads(done.stdout)
    assert document["status"] == done.returncode, done.stderr
    empty: dict[str, Any] = {"operations": [], "engines": [], "errors": []}
    return {"status": done.returncode, **empty, **(document["plan"] or [{}])[0]}


def inventory_after(folder: Path, host: Host, count: int) -> Path:
    """The inventory as it is after the first `count` situations."""
    engine, section = copy.deepcopy(BASE), {"ssh": ssh_data(host)}
    for one in SITUATIONS[:count]:
        engine = deep_merge(engine, one.engine)
        section |= one.host
    if "api_key" in engine:
        (folder / "key").write_text("sk-planted-0123456789-do-not-show\n")
    pip = engine["install"]["pip_arguments"]
    engine["install"]["pip_arguments"] = list(
        dict.fromkeys([*BASE["install"]["pip_arguments"], *pip])
    )
    return write_inventory(
        folder / "hosts.yml", {host.ip: {**section, "engines": {"chat": engine}}}
    )


BEFORE = {"count": 0}
"""How many situations the host has been through."""


@pytest.mark.parametrize(
    "at",
    [
        pytest.param(at, id=one.name, marks=[] if one.short else [pytest.mark.real])
        for at, one in enumerate(SITUATIONS)
    ],
)
def test_a_run_does_what_its_plan_says(host: Host, tmp_path: Path, at: int) -> None:
    one = SITUATIONS[at]
    if BEFORE["count"] != at and at > 0:  # those between were left out
        done = deploy(inventory_after(tmp_path, host, at), "-y")
        assert done.returncode == 0, done.stdout + done.stderr
    BEFORE["count"] = at + 1
    inventory = inventory_after(tmp_path, host, at + 1)
    if isinstance(one.done, str):
        host.exec("sh", "-c", one.done)
    elif one.done is not None:
        one.done(host)

    was, ran = files(host), units(host)
    plan = plan_of(inventory)
    assert files(host) == was, "the plan changed a file"
    assert units(host) == ran, "the plan changed a unit"

    done = deploy(inventory, "-y", "--json")
    said = done.stdout + done.stderr
    now = units(host)
    if one.undo:
        host.exec("sh", "-c", one.undo)
    if one.word == FAILS:
        assert plan["status"] == 1 and done.returncode == 1, said
        assert plan["errors"] and any(text.splitlines()[0] in said for text in plan["errors"])
        assert now == ran
        return
    (engine,) = plan["engines"]
    assert engine["action"] == one.word, engine
    assert done.returncode == 0, said
    assert set(changed(done)) == set(plan["operations"])
    assert (plan["status"] == 0) == (not plan["operations"])

    restarts = one.word in RESTARTS
    assert (now[UNIT]["InvocationID"] != ran[UNIT]["InvocationID"]) == restarts
    watch = restarts or any("watch restarts" in why for why in engine["reasons"])
    assert (now[WATCH]["InvocationID"] != ran[WATCH]["InvocationID"]) == watch
    ends = any(VLLM in text for text in (*engine["ends"], *engine["reasons"]))
    if not ends:
        assert now[VLLM] == ran[VLLM]
    assert now[VLLM]["ActiveState"] != "active" and now[VLLM]["UnitFileState"] == "disabled"
    assert now[UNIT]["ActiveState"] == "active" and now[UNIT]["UnitFileState"] == "enabled"
    again = plan_of(inventory)
    assert again["status"] == 0, again
    assert [found["action"] for found in again["engines"]] == [STAYS]


def test_there_are_enough() -> None:
    assert len(SITUATIONS) >= 25
    assert len({one.name for one in SITUATIONS}) == len(SITUATIONS)
    assert {one.word for one in SITUATIONS} >= {START, RESTART, REPAIR, STAYS, FAILS}
