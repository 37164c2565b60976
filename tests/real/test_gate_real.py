"""The launch gate of the real engine: from slot to slot, and a release that fails at its gate.

One host; the tests run in the order of the file.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from sglangctl.systemd.unit_names import slots
from tests.container.continuity import answered, systemd
from tests.container.deploying import deploy, pending, ssh_data, write_inventory
from tests.container.real_engine import WANTED
from tests.hosts.host import Host

pytestmark = [pytest.mark.container, pytest.mark.real, pytest.mark.timeout(1800)]

ENGINE: dict[str, Any] = {**WANTED, "listen": "0.0.0.0"}
UNIT = "sglang-tiny.service"
HOME = "/var/lib/sglangctl/tiny"
SLOTS = slots("tiny")


class Scene:
    """The host with the engine in a slot."""

    def __init__(self, host: Host, folder: Path) -> None:
        self.host, self.folder = host, folder
        self.url = f"http://{host.ip}:30000/health"

    def deploy(self, round_: str, **more: Any) -> tuple[int, str]:
        engine = {**ENGINE, "environment": {"ROUND": round_, **more.pop("environment", {})}, **more}
        section = {"ssh": ssh_data(self.host), "engines": {"tiny": engine}}
        self.inventory = write_inventory(self.folder / "hosts.yml", {self.host.ip: section})
        done = deploy(self.inventory, "-y")
        return done.returncode, done.stdout + done.stderr

    def switch(self, release: str) -> tuple[int, str]:
        argv = ("sglangctl", "switch", "tiny", f"--to={release}")
        done = self.host.exec(*argv, check=False, timeout=600)
        return done.returncode, done.stdout + done.stderr

    def newest(self) -> str:
        """The release that was staged last."""
        return self.host.exec("ls", "-t", f"{HOME}/releases").stdout.split()[0]

    def show(self, name: str) -> str:
        return self.host.exec("systemctl", "show", "-p", name, "--value", UNIT).stdout.strip()


@pytest.fixture(scope="module")
def scene(module_host_factory: Any, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scene]:
    made = Scene(module_host_factory("gate", image="engine"), tmp_path_factory.mktemp("gate"))
    for number in ("0", "1"):  # the first switch moves it to a slot
        status, said = made.deploy(number)
        assert status == 0, said
    yield made


def test_from_slot_to_slot(scene: Scene, record_property: Callable[[str, object], None]) -> None:
    was = systemd(scene.host)
    assert scene.show("Id") == SLOTS[0]
    for number, slot in (("2", SLOTS[1]), ("3", SLOTS[0])):
        with answered(scene.url) as statuses:
            status, said = scene.deploy(number)
        assert status == 0, said
        assert f"let {slot} in at its gate" in said, said
        assert scene.show("Id") == slot
        dark = len(statuses) - statuses.count(200)
        record_property(f"deploy_{number}", {"asked": len(statuses), "not_answered": dark})
        scene.host.exec("sglangctl", "verify", "tiny")
        assert pending(scene.inventory) == {}
    scene.host.exec("systemctl", "kill", "--signal=KILL", UNIT)
    back = f"until test $(systemctl show -p NRestarts --value {UNIT}) = 1; do sleep 0.5; done"
    scene.host.exec("timeout", "60", "sh", "-c", back)
    active = f"until systemctl is-active -q {UNIT}; do sleep 0.5; done"
    scene.host.exec("timeout", "300", "sh", "-c", active, timeout=310)
    assert systemd(scene.host) == was


def by_deploy(scene: Scene) -> tuple[int, str]:
    """What no check before the switch finds: the engine's processes do not meet."""
    return scene.deploy("4", environment={"GLOO_SOCKET_IFNAME": "nowhere0"})


def without_a_module(scene: Scene) -> tuple[int, str]:
    """Of the new environment alone, removed when all checks are over."""
    install = {**WANTED["install"], "pip_arguments": ["--no-deps", "--no-color"]}
    status, said = scene.deploy("5", install=install, restart="never")
    assert status == 0, said
    release = scene.newest()
    text = scene.host.exec("cat", f"{HOME}/releases/{release}/manifest.json").stdout
    site = f"{json.loads(text)['venv']}/lib/python3.11/site-packages"
    scene.host.exec("rm", f"{site}/sglang/srt/managers/detokenizer_manager.py")
    return scene.switch(release)


def with_a_wrong_flag(scene: Scene) -> tuple[int, str]:
    """With `sglang` among the packages the inventory knows nothing of its flags; and who is told not to
    look does not find it."""
    return scene.deploy(
        "6",
        flags={**WANTED["flags"], "no-such-flag": True},
        install={**WANTED["install"], "packages": ["sglang==0.5.23"]},
        preflight={"ignore": ["engine-arguments"]},
    )


@pytest.mark.parametrize(
    ("tried", "words"),
    [
        (by_deploy, "nowhere0"),
        (without_a_module, "detokenizer_manager"),
        (with_a_wrong_flag, "no-such-flag"),
    ],
    ids=["processes that do not meet", "a module that is gone", "a wrong flag"],
)
def test_what_fails_at_its_gate_leaves_every_question_answered(
    scene: Scene,
    tried: Callable[[Scene], tuple[int, str]],
    words: str,
    record_property: Callable[[str, object], None],
) -> None:
    slot, main, was = scene.show("Id"), scene.show("MainPID"), systemd(scene.host)
    with answered(scene.url) as statuses:
        status, said = tried(scene)
    assert status == 1, said
    assert "nothing was stopped for it" in said, said
    assert words in said, said
    record_property("asked", len(statuses))
    assert set(statuses) == {200}, statuses
    assert (scene.show("Id"), scene.show("MainPID")) == (slot, main)
    scene.host.exec("sglangctl", "verify", "tiny")
    assert systemd(scene.host) == was
