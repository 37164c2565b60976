"""Stand-in engines on this machine, for unit tests: free ports, plain files for devices."""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from sglangctl.proc import procfs
from tests.hosts.standins import model, wheel

STANDINS = Path(__file__).resolve().parent
LIMIT_S = 30.0
READY = "The server is fired up and ready to roll!"


def unpacked(folder: Path, version: str = wheel.VERSION) -> Path:
    """A folder for PYTHONPATH with the stand-in engine of that version."""
    path = wheel.build(folder / "wheels", version)
    with zipfile.ZipFile(path) as archive:
        archive.extractall(folder / "site")
    return folder / "site"


class Machine:
    """One test's devices, model, and engines."""

    def __init__(self, folder: Path, site: Path) -> None:
        self.folder = folder
        self.site = site
        self.runs: list[Run] = []
        self.devices(2)
        self.model = model.make(folder / "models/tiny")
        self.nvidia: dict[str, Any] = {}

    def devices(self, count: int) -> None:
        dev = self.folder / "dev"
        shutil.rmtree(dev, ignore_errors=True)
        dev.mkdir()
        for name in ["nvidiactl", *(f"nvidia{index}" for index in range(count))]:
            (dev / name).touch()

    def start(self, *flags: str, **environment: str) -> Run:
        """`python -m sglang.launch_server` with these flags and STANDIN_* variables."""
        port = free_port()
        argv = [sys.executable, "-m", "sglang.launch_server", "--model-path", str(self.model)]
        argv += ["--port", str(port), *flags]
        run = Run(argv, self._environment(environment), self.folder, port)
        self.runs.append(run)
        return run

    def vllm(self, *flags: str, **environment: str) -> Run:
        port = free_port()
        script = str(STANDINS / "vllm/vllm_standin.py")
        argv = [sys.executable, script, "serve", str(self.model), "--host", "127.0.0.1"]
        argv += ["--port", str(port), *flags]
        more = {f"VLLM_STANDIN_{name}": value for name, value in environment.items()}
        devices = {"VLLM_STANDIN_DEVICES": str(self.folder / "dev")}
        run = Run(argv, {**os.environ, **devices, **more}, self.folder, port)
        self.runs.append(run)
        return run

    def _environment(self, more: dict[str, str]) -> dict[str, str]:
        values = {
            "PYTHONPATH": str(self.site),
            "SGLANG_CACHE_DIR": str(self.folder / "cache"),
            "STANDIN_ENV_FILE": str(self.folder / "env"),
            "STANDIN_DEVICES": str(self.folder / "dev"),
            "STANDIN_START_S": "0.6",
            "STANDIN_SCALE": "0.05",
        }
        return {**os.environ, **values, **more}

    def smi(self, *argv: str, **config: Any) -> subprocess.CompletedProcess[str]:
        """Run the fake nvidia-smi."""
        path = self.folder / "fake-nvidia.json"
        devices = {"gpus": 2, "devices": str(self.folder / "dev"), "run": str(self.folder / "run")}
        path.write_text(json.dumps({**devices, **config}))
        done = subprocess.run(
            [sys.executable, str(STANDINS / "nvidia_smi.py"), *argv],
            env={**os.environ, "FAKE_NVIDIA_CONFIG": str(path)},
            capture_output=True,
            text=True,
            check=False,
        )
        assert not done.stderr, done.stderr
        return done

    def holders(self, index: int) -> set[int]:
        """Pids of those who hold a device open."""
        path = str(self.folder / f"dev/nvidia{index}")
        return {pid for pid in procfs.pids() if path in list(procfs.links(pid))}

    def end_all(self) -> None:
        for run in self.runs:
            run.end()


class Run:
    """A started engine in a session of its own."""

    def __init__(self, argv: list[str], environment: dict[str, str], folder: Path, port: int):
        self.port = port
        self.log_file = folder / f"engine-{port}.log"
        with open(self.log_file, "wb") as log:
            self.process = subprocess.Popen(
                argv, env=environment, stdout=log, stderr=log, start_new_session=True
            )
        self.pid = self.process.pid

    @property
    def log(self) -> str:
        return self.log_file.read_text(encoding="utf-8", errors="replace")

    def until(self, true: Callable[[], object], what: str) -> None:
        """Wait for it, at most LIMIT_S."""
        end = time.monotonic() + LIMIT_S
        while not true():
            assert time.monotonic() < end, f"not {what} in {LIMIT_S} s; its log:\n{self.log}"
            time.sleep(0.05)

    def ready(self) -> Run:
        self.until(lambda: READY in self.log or self.process.poll() is not None, "ready")
        assert self.process.poll() is None, self.log
        return self

    def exit(self) -> int:
        """Its exit status, negative for a signal."""
        return self.process.wait(LIMIT_S)

    def get(
        self, path: str, body: Any = None, timeout: float = LIMIT_S, key: str | None = None
    ) -> tuple[int, Any]:
        """Ask; the answer's JSON, or its text."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=timeout)
        headers = {"Authorization": f"Bearer {key}"} if key else {}
        with contextlib.closing(connection):
            data = None if body is None else json.dumps(body)
            connection.request("GET" if body is None else "POST", path, data, headers)
            response = connection.getresponse()
            text = response.read().decode()
        try:
            return response.status, json.loads(text)
        except ValueError:
            return response.status, text

    def serves(self) -> bool:
        """Whether /v1/models is 200."""
        try:
            return self.get("/v1/models", timeout=2)[0] == 200
        except OSError:
            return False

    def hangs(self, path: str, seconds: float = 0.7) -> bool:
        """Whether there is no answer within that time."""
        try:
            self.get(path, timeout=seconds)
        except TimeoutError:
            return True
        return False

    def session(self) -> dict[int, str]:
        """pid -> command line of all live processes of its session."""
        found = {}
        for pid in procfs.pids():
            stat = procfs.stat(pid)
            if stat and stat.session == self.pid and stat.state not in "ZX":
                found[pid] = " ".join(procfs.cmdline(pid))
        return found

    def spawned(self) -> list[int]:
        """Wait until the engine's two children are on their own: what multiprocessing's spawn sent
        them is read. A child whose parent ends before that dies of it, and is no orphan."""

        def children() -> list[int]:
            lines = self.session().items()
            return [pid for pid, line in lines if "multiprocessing.spawn" in line]

        self.until(lambda: len(children()) == 2, "spawned")
        pids = children()
        # From then on a child sleeps in its imports; until then it waits in a read, or computes.
        self.until(lambda: all(_sleeps(pid) for pid in pids), "in their imports")
        return pids

    def titled(self, title: str) -> int:
        """The pid of the process with this title. (A child that it has just forked has the same
        one, until it runs a program of its own.)"""
        found: list[int] = []

        def one() -> bool:
            found[:] = [pid for pid, line in self.session().items() if line == title]
            return len(found) == 1

        self.until(one, f"one {title} among {self.session()}")
        return found[0]

    def end(self) -> None:
        """End every process of the session that we made, by pid, while any is left."""
        for _ in range(50):
            left = self.session()
            if not left:
                break
            for pid in left:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            time.sleep(0.02)
        self.process.wait(LIMIT_S)


def _sleeps(pid: int) -> bool:
    """Whether it is in a sleep of its own choice; taken for granted where the kernel does not say."""
    try:
        place = Path(f"/proc/{pid}/wchan").read_text()
    except OSError:
        return True
    return "nanosleep" in place or place in ("", "0")


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
