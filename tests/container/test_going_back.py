"""A switch ends with an engine that serves: the new one, or the one from before. On the stand-ins;
the transaction is cut at each of its steps, by kill -9 and by a power cut of the host."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import requests

from sglangctl.switch.gate import GATING
from sglangctl.switch.transaction import ALL_STEPS, COMMITTING, STEPS
from sglangctl.systemd.unit_names import slots
from tests.container.continuity import answered, systemd
from tests.container.deploying import deploy, pending, ssh_data, write_inventory
from tests.container.engine_unit import STANDIN_ENV
from tests.hosts.host import Host
from tests.hosts.standins.install import install_into, vllm_settings

pytestmark = [pytest.mark.container, pytest.mark.timeout(300)]

LIMITS = {"sample_s": 0.5, "respawn_s": 1, "start_s": 60, "rank_stopped_s": 3, "rollback_s": 60}
ENGINE: dict[str, Any] = {
    "model": {"path": "/models/tiny"},
    "gpus": [0],
    "kernel": {"source": "none"},
    "replaces": ["vllm-kimi.service"],
    "install": {"pip_arguments": ["--no-index", "--find-links=/opt/standins/wheels"]},
    "readiness": {"limits": LIMITS},
}
UNIT, VLLM = "sglang-chat.service", "vllm-kimi.service"
HOME = "/var/lib/sglangctl/chat"
WANTS = "/etc/systemd/system/multi-user.target.wants"
ALIASES = "/usr/local/lib/systemd/system"
SLOTS = slots("chat")
A_GATE: dict[str, Any] = {"version": "0.5.24", "listen": "0.0.0.0"}
"""The stand-in that a switch knows to have one."""
CUT = """
import os, signal, sys, time
sys.path.insert(0, os.path.realpath("/usr/local/bin/sglangctl"))
from sglangctl import cli
from sglangctl.state import release
write = release.write_state
def cut(name, state, paths):
    write(name, state, paths)
    if state.step == sys.argv[1]:
        open("/run/at-the-step", "w").close()
        if sys.argv[2] == "kill":
            os.kill(os.getpid(), signal.SIGKILL)
        time.sleep(600)
release.write_state = cut
sys.exit(cli.main(sys.argv[3:]))
"""
"""`sglangctl`, ended or held once state.json names a step."""


@pytest.fixture(scope="module")
def host(module_host_factory: Any) -> Iterator[Host]:
    made = module_host_factory("back", gpus=1)
    install_into(made, gpus=1)
    yield made


def inventory_of(folder: Path, host: Host, name: str = "hosts", **more: Any) -> Path:
    section = {"ssh": ssh_data(host), "engines": {"chat": {**ENGINE, **more}}}
    return write_inventory(folder / f"{name}.yml", {host.ip: section})


def show(host: Host, unit: str, name: str) -> str:
    return host.exec("systemctl", "show", "-p", name, "--value", "--", unit).stdout.strip()


def wait_for(host: Host, condition: str, seconds: int = 60) -> None:
    loop = f"until {condition}; do sleep 0.2; done"
    host.exec("timeout", str(seconds), "sh", "-c", loop)


def state(host: Host) -> dict[str, Any]:
    document: dict[str, Any] = json.loads(host.exec("cat", f"{HOME}/state.json").stdout)
    return document


def current(host: Host) -> str:
    return host.exec("readlink", f"{HOME}/current", check=False).stdout.strip().rpartition("/")[2]


def a_vllm(host: Host, **settings: Any) -> None:
    """Somebody's vLLM serves, and starts at boot."""
    host.exec("tee", "/etc/default/vllm-kimi", input=vllm_settings(GPUS=1, **settings))
    host.exec("systemctl", "enable", "--now", VLLM)
    wait_for(host, "fuser -s 8000/tcp && fuser -s /dev/nvidia0")


def vllm_serves(host: Host) -> None:
    """It runs as it did: unit, boot, port, model, and an answer."""
    assert show(host, VLLM, "ActiveState") == "active"
    assert show(host, VLLM, "UnitFileState") == "enabled"
    answer = requests.get(f"http://{host.ip}:8000/v1/models", timeout=10)
    assert answer.json()["data"][0]["id"] == "kimi"


def nothing_of_ours_runs(host: Host) -> None:
    assert show(host, UNIT, "ActiveState") in ("inactive", "failed")
    assert show(host, UNIT, "UnitFileState") in ("disabled", "")
    assert "sglang::" not in host.exec("ps", "-eo", "args").stdout


def sound(host: Host, release: str) -> None:
    """`release` serves, is proven, starts at boot, and nothing of the switch is left."""
    wait_for(host, f"systemctl is-active -q {UNIT}")
    assert current(host) == release
    unit = show(host, UNIT, "FragmentPath")
    assert host.exec("cmp", unit, f"{HOME}/releases/{release}/sglang.service")
    files = host.exec("sh", "-c", "ls /etc/systemd/system/sglang-chat*.service").stdout.split()
    assert files == [unit], "no other slot is left"
    wanted = host.exec("sh", "-c", f"ls {WANTS}/ | grep sglang-chat", check=False).stdout.split()
    assert wanted == [unit.rpartition("/")[2]], "a boot starts this one alone"
    host.exec("sglangctl", "verify", "chat")
    assert show(host, UNIT, "UnitFileState") == "enabled"
    assert show(host, "sglang-watch@chat.service", "ActiveState") == "active"
    assert show(host, UNIT, "DropInPaths") == ""
    assert show(host, UNIT, "Restart") == "always"
    assert state(host)["phase"] in ("live", "back")
    config = json.loads(host.exec("cat", "/etc/sglangctl/engines/chat.json").stdout)
    assert config["port"] == 30000


def test_a_foreign_engine_serves_again_when_the_new_one_fails(host: Host, tmp_path: Path) -> None:
    a_vllm(host)
    failing = inventory_of(tmp_path, host, environment={"STANDIN_FAULT": "gpu-out-of-memory"})
    done = deploy(failing, "-y")
    said = done.stdout + done.stderr
    assert done.returncode == 1, said
    assert "gpu-out-of-memory" in said
    assert f"serves now:  {VLLM} serves again" in said
    assert f"way back:    none is needed: {VLLM} serves again" in said
    vllm_serves(host)
    nothing_of_ours_runs(host)
    assert current(host) == "", "a release that never served is not live"
    assert state(host)["phase"] == "back"
    # The host is not what the inventory says, and the plan knows it.
    assert any("live release" in name for name in pending(failing))


def test_a_degraded_engine_is_not_kept_where_that_is_a_failure(host: Host, tmp_path: Path) -> None:
    inventory = inventory_of(
        tmp_path,
        host,
        drafter={
            "path": "/models/tiny-eagle3",
            "algorithm": "EAGLE3",
            "steps": 3,
            "topk": 1,
            "draft_tokens": 4,
        },
        environment={"STANDIN_ACCEPT_LENGTH": "1.0"},
        readiness={"limits": LIMITS, "degraded": "fail"},
    )
    done = deploy(inventory, "-y")
    said = done.stdout + done.stderr
    assert done.returncode == 1, said
    assert f"{VLLM} serves again" in said, said
    vllm_serves(host)
    nothing_of_ours_runs(host)


def test_a_foreign_engine_serves_on_when_the_new_one_fails_at_its_gate(
    host: Host, tmp_path: Path
) -> None:
    a_vllm(host)
    main = show(host, VLLM, "MainPID")
    failing = {"STANDIN_FAULT": "rank-died@connecting", "ROUND": "gate"}
    done = deploy(inventory_of(tmp_path, host, environment=failing, **A_GATE), "-y")
    said = done.stdout + done.stderr
    assert done.returncode == 1, said
    assert f"nothing was stopped for it: {VLLM} goes on" in said, said
    assert show(host, VLLM, "MainPID") == main
    vllm_serves(host)
    nothing_of_ours_runs(host)
    assert no_unit_of_ours(host)


def no_unit_of_ours(host: Host) -> bool:
    found = f"ls /etc/systemd/system/sglang-chat* {ALIASES}/sglang-chat*"
    return host.exec("sh", "-c", found, check=False).stdout == ""


def test_an_unfit_unit_of_ours_is_as_bad_as_an_engine_that_fails(
    host: Host, tmp_path: Path
) -> None:
    """systemd cannot even start it: no watch has a verdict."""
    inventory = inventory_of(tmp_path, host, environment={"ROUND": "unfit"})
    folder = "/etc/systemd/system/sglang-chat.service.d"
    host.exec("mkdir", "-p", folder)
    host.exec("tee", f"{folder}/bad.conf", input="[Service]\nExecStartPre=/bin/false\n")
    try:
        done = deploy(inventory, "-y")
    finally:
        host.exec("rm", "-r", folder)
        host.exec("systemctl", "daemon-reload")
    said = done.stdout + done.stderr
    assert done.returncode == 1, said
    assert f"{VLLM} serves again" in said, said
    vllm_serves(host)


def test_a_good_release_is_kept_and_the_foreign_one_disabled(host: Host, tmp_path: Path) -> None:
    inventory = inventory_of(tmp_path, host, environment={"ROUND": "1"})
    done = deploy(inventory, "-y")
    assert done.returncode == 0, done.stdout + done.stderr
    assert show(host, VLLM, "ActiveState") != "active"
    assert show(host, VLLM, "UnitFileState") == "disabled"
    sound(host, current(host))
    assert state(host)["phase"] == "live"
    assert pending(inventory) == {}


def test_what_came_back_is_put_right_without_a_restart(host: Host, tmp_path: Path) -> None:
    inventory = inventory_of(tmp_path, host, environment={"ROUND": "1"})
    main = show(host, UNIT, "MainPID")
    a_vllm(host)
    host.exec("systemctl", "disable", UNIT)
    dry = deploy(inventory, "--dry")
    assert f"{VLLM}, which chat replaces, runs and is enabled again" in dry.stdout + dry.stderr
    assert set(pending(inventory)) == {"Switch | chat: drift"}
    done = deploy(inventory, "-y")
    assert done.returncode == 0, done.stdout + done.stderr
    assert show(host, VLLM, "ActiveState") != "active"
    assert show(host, VLLM, "UnitFileState") == "disabled"
    assert show(host, UNIT, "MainPID") == main
    sound(host, current(host))
    assert pending(inventory) == {}


@pytest.mark.parametrize(
    "fault", ["rank-died", "rank-stopped@loading", "unsupported-configuration"]
)
def test_our_previous_release_serves_again(host: Host, tmp_path: Path, fault: str) -> None:
    before = current(host)
    failing = inventory_of(tmp_path, host, environment={"STANDIN_FAULT": fault, "ROUND": "f"})
    done = deploy(failing, "-y")
    said = done.stdout + done.stderr
    assert done.returncode == 1, said
    assert f"release {before[:12]} of chat serves again" in said, said
    sound(host, before)
    assert "serves again" in state(host)["ended"]
    assert pending(failing) != {}


def test_a_release_that_answers_otherwise_with_the_same_weights_is_refused(
    host: Host, tmp_path: Path
) -> None:
    before = current(host)
    wanted = {"fail": True, "limit_s": 3, "tokens": 12, "concurrency": 2}
    other = {"STANDIN_TEXT": "Something else, of a model that is broken.", "ROUND": "a"}
    refused = inventory_of(tmp_path, host, acceptance=wanted, environment=other)
    done = deploy(refused, "-y")
    said = done.stdout + done.stderr
    assert done.returncode == 1, said
    assert "it is measured and asked, for at most 6 s" in said, said
    assert f"{UNIT}: 1 at a time" in said, said
    assert "0 of 6 answers begin as before" in said, said
    assert f"release {before[:12]} of chat serves again" in said, said
    sound(host, before)


def test_a_fallback_that_helps_serves_and_stays(host: Host, tmp_path: Path) -> None:
    wanted: dict[str, Any] = {
        "environment": {"STANDIN_FAULT": "gpu-out-of-memory", "ROUND": "fallback"},
        "fallbacks": {
            "same": {"environment": {"ROUND": "same"}},
            "less": {"environment": {"STANDIN_FAULT": None}},
        },
    }
    inventory = inventory_of(tmp_path, host, **wanted)
    plan = deploy(inventory, "--dry")
    assert "fallback same, then less" in plan.stdout + plan.stderr
    done = deploy(inventory, "-y")
    said = done.stdout + done.stderr
    assert done.returncode == 0, said
    assert "chat serves with fallback less because gpu-out-of-memory" in said
    served, main = current(host), show(host, UNIT, "MainPID")
    sound(host, served)
    assert "fallback less" in host.exec("sglangctl", "status", "chat").stdout
    again = deploy(inventory, "-y")
    assert again.returncode == 0, again.stdout + again.stderr
    plan = deploy(inventory, "--dry")
    assert "fallback less serves because gpu-out-of-memory" in plan.stdout + plan.stderr
    assert pending(inventory) == {}
    assert show(host, UNIT, "MainPID") == main
    wanted["fallbacks"] = {"less": {"environment": {"STANDIN_FAULT": None, "ROUND": "less"}}}
    assert any("live release" in name for name in pending(inventory_of(tmp_path, host, **wanted)))


def test_without_a_way_back_it_says_that_nothing_serves(host: Host, tmp_path: Path) -> None:
    failing = inventory_of(
        tmp_path, host, environment={"STANDIN_FAULT": "rank-died"}, rollback=False
    )
    done = deploy(failing, "-y")
    said = done.stdout + done.stderr
    assert done.returncode == 1
    assert "rollback: false" in said
    assert "serves again" not in said
    assert "if chat does not become ready: nothing is started again" in said
    assert "at the next boot: neither it nor what it replaces starts" in said
    assert show(host, UNIT, "UnitFileState") == "disabled", "it was never proven"
    assert show(host, UNIT, "ActiveState") in ("inactive", "failed")
    assert "sglang::" not in host.exec("ps", "-eo", "args").stdout
    failed = current(host)
    good = inventory_of(tmp_path, host, environment={"ROUND": "1"})
    assert deploy(good, "-y").returncode == 0
    assert current(host) != failed
    sound(host, current(host))


def without_unit(host: Host) -> None:
    """The engine is stopped, and in no unit: the next deploy begins with that of its own name."""
    if show(host, UNIT, "LoadState") == "not-found":
        return  # A host to which nothing was deployed yet.
    host.exec("sglangctl", "stop", "chat")
    host.exec("rm", "-f", show(host, UNIT, "FragmentPath"), f"{ALIASES}/{UNIT}")
    host.exec("systemctl", "daemon-reload")


def two_releases(host: Host, tmp_path: Path, **more: Any) -> tuple[str, str]:
    """(live, other): two that are known to serve, both staged on the host."""
    for number in ("1", "2"):
        inventory = inventory_of(tmp_path, host, environment={"ROUND": number}, **more)
        assert deploy(inventory, "-y").returncode == 0
        host.exec("cp", "/etc/sglangctl/engines/chat.json", "/root/chat.json")
        if number == "1":
            other = current(host)
    return current(host), other


def test_on_demand_the_good_release_before_serves_again(host: Host, tmp_path: Path) -> None:
    live, other = two_releases(host, tmp_path)
    inventory = inventory_of(tmp_path, host, environment={"ROUND": "2"})
    dry = deploy(inventory, "--dry", script="rollback")
    assert f"rollback of chat to release {other[:12]}" in dry.stdout + dry.stderr
    way_back = f"if chat does not become ready: back to release {live[:12]}"
    assert way_back in dry.stdout + dry.stderr
    assert current(host) == live
    done = deploy(inventory, "-y", script="rollback")
    assert done.returncode == 0, done.stdout + done.stderr
    sound(host, other)
    host.exec("sglangctl", "rollback", "chat")
    sound(host, live)


def begin_cut(host: Host, step: str, how: str, to: str) -> None:
    host.exec("rm", "-f", "/run/at-the-step")
    argv = ["switch", "chat", f"--to={to}", "--config=/root/chat.json", "--reason=test"]
    host.exec("tee", "/root/cut.py", input=CUT)
    host.exec(
        *("systemd-run", "--unit=cut", "--collect", "--quiet", "--no-block", "python3"),
        *("/root/cut.py", step, how, *argv),
    )
    wait_for(host, "test -e /run/at-the-step")


CUTS = [*((step, {}) for step in STEPS), *((step, A_GATE) for step in ALL_STEPS)]
"""Every step of a switch that stops first, and of one that starts beside what serves."""


def cut_name(value: Any) -> str:
    return value if isinstance(value, str) else "gated" if value else "plain"


@pytest.mark.real  # every step twice: `make test` cuts at the steps of the tests below
@pytest.mark.parametrize(("step", "more"), CUTS, ids=cut_name)
def test_a_killed_transaction_is_resumed(
    host: Host, tmp_path: Path, step: str, more: dict[str, Any]
) -> None:
    live, other = two_releases(host, tmp_path, **more)
    begin_cut(host, step, "kill", other)
    wait_for(host, "! systemctl is-active -q cut.service")
    host.exec("sglangctl", "switch", "chat", "--resume")
    sound(host, other if step == COMMITTING else live)
    again = host.exec("sglangctl", "switch", "chat", "--resume", check=False)
    assert again.returncode == 1
    assert "nothing to resume" in again.stderr


@pytest.mark.real
@pytest.mark.parametrize(("step", "more"), CUTS, ids=cut_name)
def test_a_power_cut_boots_the_side_that_counts(
    host: Host, tmp_path: Path, step: str, more: dict[str, Any]
) -> None:
    live, other = two_releases(host, tmp_path, **more)
    begin_cut(host, step, "hold", other)
    host.reboot()
    sound(host, other if step == COMMITTING else live)
    assert state(host)["phase"] == ("live" if step == COMMITTING else "back")


def in_a_slot(host: Host, tmp_path: Path) -> str:
    """The release that serves in a slot, from which a switch is gated."""
    if show(host, UNIT, "Id") not in SLOTS or show(host, UNIT, "ActiveState") != "active":
        two_releases(host, tmp_path, **A_GATE)
    return current(host)


@pytest.mark.timeout(600)
def test_the_gate_is_used_from_the_second_switch_on_and_systemd_lives(
    host: Host, tmp_path: Path
) -> None:
    """The first one moves the engine, in the unit of its own name, to a slot; then it takes turns."""
    without_unit(host)
    assert deploy(inventory_of(tmp_path, host), "-y").returncode == 0
    was = systemd(host)
    assert show(host, UNIT, "Id") == UNIT
    done = deploy(inventory_of(tmp_path, host, environment={"ROUND": "1"}, **A_GATE), "-y")
    said = done.stdout + done.stderr
    assert done.returncode == 0, said
    assert f"cutover: plain: {UNIT} is in no slot yet" in said
    assert show(host, UNIT, "Id") == SLOTS[0]
    sound(host, current(host))
    inventory = inventory_of(tmp_path, host, environment={"ROUND": "2"}, **A_GATE)
    for slot in reversed(SLOTS):
        main = show(host, UNIT, "MainPID")
        done = (
            deploy(inventory, "-y")
            if slot == SLOTS[1]
            else host.exec("sglangctl", "rollback", "chat")
        )
        said = done.stdout + done.stderr
        assert done.returncode == 0, said
        assert f"{slot} waits at its gate after" in said, said
        assert f"let {slot} in at its gate" in said
        assert show(host, UNIT, "Id") == slot
        assert show(host, UNIT, "MainPID") not in ("0", main)
        sound(host, current(host))
        start = json.loads(host.exec("sglangctl", "status", "chat", "--json").stdout)["status"][0]
        assert (start["unit"], "gated" in start["phases"]) == (slot, True)
        assert "Gated launch waiting" in host.exec("sglangctl", "logs", "chat", "-n", "400").stdout
        # The end of the main process is what systemd could not bear.
        host.exec("systemctl", "kill", "--signal=KILL", UNIT)
        wait_for(host, f"test $(systemctl show -p NRestarts --value {UNIT}) = 1")
        sound(host, current(host))
        assert systemd(host) == was


def test_what_has_been_at_its_gate_goes_by_the_engines_name(host: Host, tmp_path: Path) -> None:
    live, was = in_a_slot(host, tmp_path), systemd(host)
    host.exec("systemctl", "restart", UNIT)
    host.exec("systemctl", "daemon-reload")
    sound(host, live)
    host.exec("sglangctl", "stop", "chat")
    nothing_of_ours_runs(host)
    demanded = inventory_of(tmp_path, host, environment={"ROUND": "1"}, cutover="gated", **A_GATE)
    done = deploy(demanded, "-y")
    assert done.returncode == 0, done.stdout + done.stderr
    sound(host, current(host))
    assert pending(demanded) == {}
    assert systemd(host) == was


def test_what_fails_at_its_gate_stops_nothing(host: Host, tmp_path: Path) -> None:
    before = in_a_slot(host, tmp_path)
    main = show(host, UNIT, "MainPID")
    failing = inventory_of(
        tmp_path, host, environment={"STANDIN_FAULT": "rank-died@connecting"}, **A_GATE
    )
    with answered(f"http://{host.ip}:30000/v1/models") as statuses:
        done = deploy(failing, "-y")
    said = done.stdout + done.stderr
    assert done.returncode == 1, said
    assert "rank-died" in said
    assert f"nothing was stopped for it: release {before[:12]} of chat goes on" in said
    assert set(statuses) == {200}, statuses
    assert show(host, UNIT, "MainPID") == main
    sound(host, before)
    assert state(host)["phase"] == "back"


def test_a_killed_transaction_is_also_put_right_by_the_next_deploy(
    host: Host, tmp_path: Path
) -> None:
    _, other = two_releases(host, tmp_path)
    begin_cut(host, "following", "kill", other)
    wait_for(host, "! systemctl is-active -q cut.service")
    inventory = inventory_of(tmp_path, host, environment={"ROUND": "1"})
    assert any("live release" in name for name in pending(inventory))
    assert deploy(inventory, "-y").returncode == 0
    sound(host, other)
    assert pending(inventory) == {}


@contextmanager
def loading(host: Host, to: str, seconds: int) -> Iterator[None]:
    """A switch (cut.service) whose engine loads; what starts afterwards loads as quickly as ever."""
    host.exec("mkdir", "-p", "/etc/standins")
    host.exec("tee", STANDIN_ENV, input=f"STANDIN_LOADING_S={seconds}\n")
    try:
        host.exec(
            *("systemd-run", "--unit=cut", "--collect", "--quiet", "--no-block", "sglangctl"),
            *("switch", "chat", f"--to={to}", "--config=/root/chat.json"),
        )
        wait_for(host, f"""grep -q '"step": "following"' {HOME}/state.json""")
        yield
    finally:
        host.exec("rm", STANDIN_ENV)


def test_stop_ends_a_switch_and_starts_nothing(host: Host, tmp_path: Path) -> None:
    _, other = two_releases(host, tmp_path)
    with loading(host, other, seconds=30):
        done = host.exec("sglangctl", "stop", "chat")
    assert "stopped and disabled" in done.stdout
    nothing_of_ours_runs(host)
    wait_for(host, "! systemctl is-active -q cut.service")
    nothing_of_ours_runs(host)


def test_a_switch_that_is_told_to_end_goes_back(host: Host, tmp_path: Path) -> None:
    live, other = two_releases(host, tmp_path)
    with loading(host, other, seconds=8):
        pass
    host.exec("systemctl", "kill", "--kill-whom=main", "--signal=TERM", "cut.service")
    wait_for(host, "! systemctl is-active -q cut.service")
    sound(host, live)


@pytest.mark.parametrize(
    ("step", "more"),
    [("following", {}), pytest.param(GATING, A_GATE, marks=pytest.mark.real)],
    ids=cut_name,
)
def test_a_foreign_engine_boots_after_a_power_cut_in_the_first_switch(
    host: Host, tmp_path: Path, step: str, more: dict[str, Any]
) -> None:
    _, other = two_releases(host, tmp_path, **more)
    without_unit(host)
    for link in ("current", "previous", "known-good"):
        host.exec("rm", "-f", f"{HOME}/{link}")
    host.exec("rm", f"{HOME}/state.json")
    a_vllm(host)
    begin_cut(host, step, "hold", other)
    host.reboot()
    wait_for(host, "fuser -s 8000/tcp")
    vllm_serves(host)
    nothing_of_ours_runs(host)
    assert current(host) == ""
    assert no_unit_of_ours(host)
    assert state(host)["phase"] == "back"
