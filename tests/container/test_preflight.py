"""The preflight on the real engine: what could not start is refused while the old engine serves on.

One host for all of it, with a release of the real SGLang 0.5.23 that is live and serves; each case
changes one thing, deploys, and puts it back.
"""

from __future__ import annotations

import json
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.container.deploying import deploy, filesystem, ssh_data, write_inventory
from tests.container.real_engine import WANTED
from tests.hosts.host import Host

pytestmark = [pytest.mark.container, pytest.mark.real, pytest.mark.timeout(900)]

MODEL = WANTED["model"]["path"]
SHARD = f"{MODEL}/model-00003-of-00006.safetensors"
ENGINE: dict[str, Any] = {**WANTED, "hardening": "strict"}


class Scene:
    """A host on which the real engine serves."""

    def __init__(self, host: Host, folder: Path) -> None:
        self.host, self.inventory = host, folder / "hosts.yml"

    def deploy(self, *arguments: str, **changes: Any) -> tuple[int, str]:
        """Deploy the engine with these changes: exit status and all that was said."""
        host = {"ssh": ssh_data(self.host), "engines": {"tiny": {**ENGINE, **changes}}}
        write_inventory(self.inventory, {self.host.ip: host})
        done = deploy(self.inventory, *(arguments or ("-y",)))
        return done.returncode, done.stdout + done.stderr

    def refused(self, **changes: Any) -> str:
        """Deploy; what was said. The engine that serves is the one from before, and serves on."""
        before = self.running()
        status, text = self.deploy(**changes)
        assert status == 1, text
        assert self.running() == before, text
        return text

    def running(self) -> str:
        shown = "MainPID,NRestarts,ActiveState,InvocationID"
        found = self.host.exec("systemctl", "show", "-p", shown, "sglang-tiny").stdout
        assert "ActiveState=active" in found
        self.host.exec("curl", "-sf", "--max-time", "60", "http://127.0.0.1:30000/health")
        return found

    @contextmanager
    def with_(self, change: str, back: str) -> Iterator[None]:
        """Something wrong on the host, for a moment; both are shell text of this test."""
        self.host.exec("sh", "-c", change)
        try:
            yield
        finally:
            self.host.exec("sh", "-c", back)

    def ctl(self, *words: str) -> subprocess.CompletedProcess[str]:
        return self.host.exec("sglangctl", *words, check=False, timeout=400)


@pytest.fixture(scope="module")
def scene(module_host_factory: Any, tmp_path_factory: pytest.TempPathFactory) -> Scene:
    made = Scene(module_host_factory("real", image="engine"), tmp_path_factory.mktemp("preflight"))
    status, text = made.deploy()
    assert status == 0, text
    return made


def test_a_healthy_host_has_nothing_but_info(scene: Scene) -> None:
    for gate in ("before", "staged"):
        done = scene.ctl("preflight", "tiny", f"--gate={gate}", "--json")
        assert done.returncode == 0, done.stdout + done.stderr
        document = json.loads(done.stdout)
        assert {one["level"] for one in document["findings"]} <= {"info"}, document
    status, text = scene.deploy("--dry")
    assert status == 0 and "warn" not in text, text


def test_what_was_asked_is_not_asked_again(scene: Scene) -> None:
    began = time.monotonic()
    assert scene.ctl("preflight", "tiny", "--gate=staged").returncode == 0
    assert time.monotonic() - began < 5
    left = scene.host.exec("sh", "-c", "ls /run/sglangctl/preflight /run/systemd/system").stdout
    assert "tiny" not in left


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        ({"attention-backend": "flashinfr"}, "--attention-backend: invalid choice: 'flashinfr'"),
        ({"atention-backend": "triton"}, "unrecognized arguments: --atention-backend triton"),
    ],
)
def test_what_the_installed_engine_does_not_take(
    scene: Scene, flags: dict[str, Any], words: str
) -> None:
    """With `sglang` among the packages the inventory knows nothing of its flags."""
    install = {**ENGINE["install"], "packages": ["sglang==0.5.23"]}
    text = scene.refused(install=install, flags={**ENGINE["flags"], **flags})
    for word in (words, "the engine refuses its arguments", "what runs now was left alone"):
        assert word in text, text


def test_a_module_that_is_missing(scene: Scene) -> None:
    """Of the system's packages, which the environment sees: another release, the same venv."""
    site = "/usr/local/lib/python3.11/dist-packages"
    with scene.with_(f"mv {site}/gguf {site}/gguf.away", f"mv {site}/gguf.away {site}/gguf"):
        text = scene.refused(environment={"X_NEW": "1"})
    assert "No module named 'gguf'" in text
    assert "cannot be imported" in text and "what runs now was left alone" in text


def test_what_the_gate_shows_is_not_asked_before(scene: Scene) -> None:
    """The first of two switches moves the engine to a slot; the second is gated."""
    status, text = scene.deploy(environment={"X_NEW": "gate"})
    assert status == 0, text
    install = {**ENGINE["install"], "packages": ["sglang==0.5.23"]}
    flags = {**ENGINE["flags"], "attention-backend": "flashinfr"}
    text = scene.refused(install=install, flags=flags, environment={"X_NEW": "gate"})
    assert "cutover: gated" in text and "its parser and its imports" not in text, text
    assert "--attention-backend: invalid choice: 'flashinfr'" in text, text
    assert "nothing was stopped for it" in text, text


def test_a_missing_shard_and_one_that_is_closed_stop_a_switch_before_it_begins(
    scene: Scene,
) -> None:
    changed = {"environment": {"X_NEW": "2"}}
    with scene.with_(f"mv {SHARD} /models/away", f"mv /models/away {SHARD}"):
        text = scene.refused(**changed)
        assert "model-00003-of-00006.safetensors is missing" in text
        assert "nothing was changed" in text
    with scene.with_(f"chmod 600 {SHARD}", f"chmod 644 {SHARD}"):
        text = scene.refused(**changed)
        assert "user sglang-tiny cannot read it: mode 0600" in text


def test_a_converged_host_whose_model_is_damaged_says_so(scene: Scene) -> None:
    status, text = scene.deploy()  # the test before has another release
    assert status == 0, text
    with scene.with_(f"mv {SHARD} /models/away", f"mv /models/away {SHARD}"):
        for mode in ("--dry", "-y"):
            status, text = scene.deploy(mode)
            assert status == 1, text
            assert "model-00003-of-00006.safetensors is missing" in text
            assert "could not start again" in text
        scene.running()
    status, text = scene.deploy()
    assert status == 0, text


def test_the_report_of_all_hosts_changes_nothing(scene: Scene) -> None:
    before = without_journals(scene.host)
    scene.deploy("--dry")
    with scene.with_(f"chmod 600 {SHARD}", f"chmod 644 {SHARD}"):
        done = deploy(scene.inventory, "-y", script="preflight")
        text = done.stdout + done.stderr
        assert done.returncode == 1, text
        assert "fail weights-unreadable" in text and "preflight: tiny would fail: /models/" in text
    done = deploy(scene.inventory, "-y", script="preflight")
    assert done.returncode == 0, done.stdout + done.stderr
    assert without_journals(scene.host) == before


def without_journals(host: Host) -> list[str]:
    """The engine that serves writes its log, and its watch a line a minute."""
    lines = filesystem(host)
    return [one for one in lines if "/starts/" not in one and "/log/sglang/" not in one]
