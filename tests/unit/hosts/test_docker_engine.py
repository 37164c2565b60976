"""docker_engine.sh: starts an engine only where none answers, stops only its own."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.hosts.say import ROOT
from tests.support.waiting import until

pytestmark = pytest.mark.skipif(os.getuid() != 0, reason="only root may start a Docker engine")

DOCKER = '#!/bin/sh\ntest -e "$ANSWERS"\n'
DOCKERD = '#!/bin/sh\necho "$@"\n: >"$ANSWERS"\ntrap \'rm -f "$ANSWERS"; exit 0\' TERM\n'
LIVES = "while :; do sleep 0.1; done\n"


class Checkout:
    """A checkout with the script, and a Docker of its own first in PATH."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.answers = folder, folder / "answers"
        (folder / "tests/hosts").mkdir(parents=True)
        (folder / "bin").mkdir()
        shutil.copy(ROOT / "tests/hosts/docker_engine.sh", folder / "tests/hosts")
        self.program("docker", DOCKER)
        self.program("dockerd", DOCKERD + LIVES)

    def program(self, name: str, text: str) -> None:
        (self.folder / "bin" / name).write_text(text)
        (self.folder / "bin" / name).chmod(0o755)

    def run(self, verb: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [self.folder / "tests/hosts/docker_engine.sh", verb],
            env=self.env(),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=60,
        )

    def env(self) -> dict[str, str]:
        path = f"{self.folder}/bin:{os.environ['PATH']}"
        return {**os.environ, "PATH": path, "ANSWERS": str(self.answers)}

    @property
    def pid_file(self) -> Path:
        return self.folder / ".cache/docker/dockerd.pid"


@pytest.fixture
def checkout(tmp_path: Path) -> Iterator[Checkout]:
    made = Checkout(tmp_path)
    yield made
    made.run("stop")


@pytest.mark.slow
def test_starts_one_that_outlives_the_script_and_stops_it(checkout: Checkout) -> None:
    started = checkout.run("start")
    assert started.returncode == 0 and "ready after" in started.stdout, started.stderr
    pid = int(checkout.pid_file.read_text())
    assert os.getsid(pid) == pid
    assert "already" not in checkout.run("start").stdout  # a second start is content
    assert int(checkout.pid_file.read_text()) == pid
    stopped = checkout.run("stop")
    assert stopped.returncode == 0 and "stopped" in stopped.stdout
    assert not Path(f"/proc/{pid}").exists() and not checkout.pid_file.exists()


def test_an_engine_of_somebody_else_is_used_and_left_alone(checkout: Checkout) -> None:
    other = subprocess.Popen([checkout.folder / "bin/dockerd"], env=checkout.env())
    try:
        until(checkout.answers.exists, 30)
        assert "answers" in checkout.run("start").stdout
        assert "no engine was started here" in checkout.run("stop").stdout
        assert other.poll() is None
    finally:
        other.terminate()
        other.wait()


def test_a_pid_that_another_program_got_meanwhile_is_not_killed(checkout: Checkout) -> None:
    checkout.pid_file.parent.mkdir(parents=True)
    other = subprocess.Popen(["sleep", "60"])
    try:
        checkout.pid_file.write_text(f"{other.pid}\n")
        assert checkout.run("stop").returncode == 0
        assert other.poll() is None
    finally:
        other.kill()
        other.wait()


@pytest.mark.slow
def test_an_engine_that_ends_at_once_is_an_error_with_its_last_words(checkout: Checkout) -> None:
    checkout.program(
        "dockerd", "#!/bin/sh\necho 'failed to mount overlay: no such device'\nexit 1\n"
    )
    done = checkout.run("start")
    assert done.returncode == 1
    assert "failed to mount overlay: no such device" in done.stderr
