from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from sglangctl.proc import procfs
from sglangctl.state.paths import Paths
from sglangctl.util.errors import Unusable
from sglangctl.watch import lock as watch_lock
from tests.support import watched as support
from tests.support.engine_host import free_port, log_of, write_config
from tests.support.holding import as_user, passable
from tests.support.tiny_engine import running
from tests.support.waiting import catches, until

PLANTED = "sk-planted-0123456789"
STRANGER = Path(__file__).parents[3] / "support" / "stranger.py"


@pytest.fixture(autouse=True)
def not_in_a_unit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("INVOCATION_ID", raising=False)
    monkeypatch.delenv("MAINPID", raising=False)


def start(*arguments: str, **environment: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "sglangctl", "wait", "tiny", *arguments],
        env={**os.environ, **environment},
        stderr=subprocess.PIPE,
        text=True,
    )


def test_returns_when_it_serves(root: Path, port: int) -> None:
    with running(port, "--load-s", "1", log=log_of(root)) as engine:
        began = time.monotonic()
        with start("--pid", str(engine.pid)) as wait:
            assert wait.wait(30) == 0, wait.stderr.read() if wait.stderr else ""
        assert time.monotonic() - began >= 0.5  # not before it was up
    assert not (root / "var/lib/sglangctl").exists()  # it wrote nothing


def test_a_failure_is_told_with_its_cause(root: Path, port: int) -> None:
    line = "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB."
    with (
        running(port, "--load-s", "60", "--fail", line, log=log_of(root)) as engine,
        start("--pid", str(engine.pid)) as wait,
    ):
        log = str(log_of(root))
        until(lambda: log in procfs.links(wait.pid) and catches(engine.pid, signal.SIGUSR1))
        os.kill(engine.pid, signal.SIGUSR1)
        threading.Thread(target=engine.wait, daemon=True).start()
        assert wait.wait(30) == 1
        assert wait.stderr is not None
        said = wait.stderr.read()
    assert "(gpu-out-of-memory)" in said
    assert line in said
    assert "next: " in said
    # The lines land in the engine's log: marked, so that they are not read as the engine's.
    assert all(text.startswith("sglangctl wait: ") for text in said.splitlines())


def test_ends_with_the_main_process(root: Path, port: int) -> None:
    with (
        running(port, "--load-s", "60", log=log_of(root)) as engine,
        start("--pid", str(engine.pid)) as wait,
    ):
        until(lambda: catches(wait.pid, signal.SIGTERM))
        assert wait.poll() is None
        engine.kill()  # a zombie of ours now, as it is of systemd's for a moment
        began = time.monotonic()
        assert wait.wait(20) == 1
        assert time.monotonic() - began < 10


def test_sigterm_is_a_success(root: Path, port: int) -> None:
    with running(port, "--load-s", "60") as engine, start("--pid", str(engine.pid)) as wait:
        until(lambda: catches(wait.pid, signal.SIGTERM))
        wait.send_signal(signal.SIGTERM)
        assert wait.wait(10) == 0


@pytest.mark.slow
def test_another_server_s_answer_is_not_ours(root: Path, port: int) -> None:
    from tests.support.http_engine import Engine, serving

    with (
        serving(Engine(), port),
        running(free_port(), "--load-s", "60") as engine,
        start("--pid", str(engine.pid)) as wait,
    ):
        until(lambda: catches(wait.pid, signal.SIGTERM))
        with pytest.raises(subprocess.TimeoutExpired):
            wait.wait(1.5)  # seven times as long as it takes to ask
        wait.kill()


@pytest.mark.parametrize("whose", ["a stranger's", "the engine's"])
def test_a_stranger_on_the_port_never_gets_the_key(root: Path, port: int, whose: str) -> None:
    """Without a watch it asks for itself; the same listener as the engine's process is asked with the
    key, so that this test would see it."""
    record, release = root / "record", Paths(root).current("tiny")
    release.mkdir(parents=True)
    (release / "engine.yaml").write_text(f'api-key: "{PLANTED}"\n')
    listener = [sys.executable, str(STRANGER), "127.0.0.1", str(port), str(record)]
    with (
        subprocess.Popen(
            listener, stdout=subprocess.PIPE, text=True, start_new_session=True
        ) as stranger,
        running(free_port(), "--load-s", "60") as engine,
    ):
        assert stranger.stdout is not None and int(stranger.stdout.readline()) == port
        ours = engine if whose == "a stranger's" else stranger
        with start("--pid", str(ours.pid)) as wait:
            try:
                enough = 1 if ours is stranger else 2
                until(lambda: record.exists() and record.read_text().count("GET /") >= enough)
            finally:
                wait.kill()
                stranger.kill()
            assert wait.stderr is not None and PLANTED not in wait.stderr.read()
    assert (f"Bearer {PLANTED}" in record.read_text()) == (whose == "the engine's")


def test_the_deadline(root: Path, port: int) -> None:
    write_config(root, port, limits={"start_s": 1.0})
    with (
        running(port, "--load-s", "60", log=log_of(root)) as engine,
        start("--pid", str(engine.pid)) as wait,
    ):
        assert wait.wait(20) == 1
        assert wait.stderr is not None
        assert "was not serving after 1 s" in wait.stderr.read()


def test_nothing_to_wait_for(root: Path) -> None:
    with start("--pid", "4194300") as wait:
        assert wait.wait(10) == 1
    with subprocess.Popen([sys.executable, "-m", "sglangctl", "wait", "nobody"]) as wait2:
        assert wait2.wait(10) == 2


class Watched:
    """A journal that is being written, as by a watch."""

    def __init__(self, root: Path, invocation: str) -> None:
        self.starts = root / "var/lib/sglangctl/tiny/starts"
        folder = self.starts / f"20260101T000000Z-{invocation}"
        folder.mkdir(parents=True)
        self.lock = watch_lock.acquire(self.starts)
        self.writer = support.Watched(folder / "journal.jsonl")

    def die(self) -> None:
        self.lock.close()


@pytest.fixture
def watched(root: Path) -> Watched:
    return Watched(root, "ab" * 16)


def reading(engine_pid: int) -> subprocess.Popen[str]:
    return start(MAINPID=str(engine_pid), INVOCATION_ID="ab" * 16)


def test_reads_the_watch_s_journal(root: Path, port: int, watched: Watched) -> None:
    watched.writer.write(0.0, "launch", engine="sglang", port=port)
    with running(port, "--load-s", "60") as engine, reading(engine.pid) as wait:
        until(lambda: catches(wait.pid, signal.SIGTERM))
        assert wait.poll() is None
        watched.writer.write(2.0, "socket", port=port, owner_pid=engine.pid, ours=True)
        watched.writer.write(3.2, "http", path="/health", status=200, seconds=1.0)
        assert wait.wait(10) == 0


@pytest.mark.slow
def test_takes_over_from_a_watch_that_dies(root: Path, port: int, watched: Watched) -> None:
    watched.writer.write(0.0, "launch", engine="sglang", port=port)
    size = watched.writer.path.stat().st_size
    with running(port, "--load-s", "2", log=log_of(root)) as engine, reading(engine.pid) as wait:
        until(lambda: catches(wait.pid, signal.SIGTERM))
        watched.die()
        assert wait.wait(20) == 0
    assert watched.writer.path.stat().st_size == size


def test_a_start_that_was_over_before_we_began(root: Path, port: int, watched: Watched) -> None:
    watched.writer.write(0.0, "launch", engine="sglang", port=port)
    line = "OSError: Repo id must be in the form 'repo_name' or 'namespace/repo_name': '/m'."
    watched.writer.write(0.5, "log", data=line + "\n")
    watched.writer.write(0.6, "exit", returncode=1)
    with running(port) as engine:
        pass
    with reading(engine.pid) as wait:
        assert wait.wait(15) == 1
        assert wait.stderr is not None
        said = wait.stderr.read()
    assert "(model-not-found)" in said and line in said


@pytest.mark.slow
def test_a_watch_that_says_nothing_does_not_hold_it(
    root: Path, port: int, watched: Watched
) -> None:
    # The watch lives, but its journal never tells of the end.
    watched.writer.write(0.0, "launch", engine="sglang", port=port)
    with running(port, "--load-s", "60") as engine, reading(engine.pid) as wait:
        until(lambda: catches(wait.pid, signal.SIGTERM))
        engine.kill()
        assert wait.wait(15) == 1


def test_who_watches(tmp_path: Path) -> None:
    assert not watch_lock.watched(tmp_path)
    lock = watch_lock.acquire(tmp_path)
    assert watch_lock.watched(tmp_path)
    with pytest.raises(Unusable):
        watch_lock.acquire(tmp_path)
    lock.close()
    assert not watch_lock.watched(tmp_path)


HOLD_ALL = """
import fcntl, os, struct, sys
read = struct.pack("hhqqi", fcntl.F_RDLCK, 0, 0, 0, 0)
for name in os.listdir(sys.argv[1]):
    try:
        file = os.open(os.path.join(sys.argv[1], name), os.O_RDONLY)
    except PermissionError:
        continue
    fcntl.flock(file, fcntl.LOCK_EX)
    fcntl.fcntl(file, fcntl.F_OFD_SETLK, read)
print("all that there is", flush=True)
sys.stdin.read()
"""


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root: another user's process")
def test_the_engines_user_sees_the_watch_and_cannot_keep_it_away() -> None:
    """The starts folder as a deploy makes it, and a process of the engine's user in it that has
    taken every lock that it can get."""
    look = "from sglangctl.watch import lock as w; import sys, pathlib as p; "
    look += "print(w.watched(p.Path(sys.argv[1])))"
    with passable() as folder:
        os.chown(folder, 0, 4242)
        folder.chmod(0o2750)
        watch_lock.acquire(folder).close()  # so that the files are there
        with passable() as program:
            shutil.copytree(Path(watch_lock.__file__).parents[1], program / "sglangctl")

            def seen() -> str:
                argv = [*as_user(4242), sys.executable, "-c", look, str(folder)]
                done = subprocess.run(
                    argv, cwd=program, capture_output=True, text=True, check=True, timeout=30
                )
                return done.stdout.strip()

            assert seen() == "False"
            hostile = subprocess.Popen(
                [*as_user(4242), sys.executable, "-c", HOLD_ALL, str(folder)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
            )
            assert hostile.stdout and hostile.stdout.readline()
            try:
                lock = watch_lock.acquire(folder)
            finally:
                hostile.communicate(timeout=10)
            assert seen() == "True"
            with pytest.raises(Unusable):
                watch_lock.acquire(folder)
            lock.close()
            assert seen() == "False"
