"""Container hosts with compilers, and what the kernel's tests do on them again and again."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from roles.remote import program
from sglangctl.sgl_kernel import key as keys
from sglangctl.sgl_kernel.build import request as requests
from sglangctl.state import journal
from tests.hosts.host import Host, Mount
from tests.kernel import cuda

PROJECT = Path(__file__).parents[1] / "kernel/project"
SOURCE = "/srv/kernel-source"
CACHE = "/var/cache/sglangctl/kernel"
VENV = "/opt/kernel-test"
TORCH = "2.13.0+cpu"


def mounts(repository: Path) -> list[Mount]:
    """The toolkit at its usual place, cuobjdump beside it, the tools' wheels, the source."""
    return [
        Mount(cuda.toolkit_home(), "/usr/local/cuda"),
        Mount(cuda.tools(), "/srv/wheels"),
        Mount(repository, SOURCE),
        *cuobjdump_mount(),
    ]


def cuobjdump_mount() -> list[Mount]:
    return [Mount(cuda.cuobjdump(), "/usr/local/bin/cuobjdump")]


@dataclass
class KernelHost:
    """A container host with our program on it and an environment that sees the image's torch."""

    host: Host
    commit: str
    facts: dict[str, Any] = field(default_factory=dict)

    def prepare(self, venv: str = VENV) -> KernelHost:
        self.host.copy_in(program.archive(), program.path(), mode=0o755)
        self.host.exec("ln", "-sfn", program.path(), program.LINK)
        self.host.exec("python3", "-m", "venv", "--system-site-packages", venv)
        self.facts = json.loads(self.ctl("survey", f"--venv={venv}", "--sm=120").stdout)
        return self

    def ctl(self, *arguments: str, check: bool = True, timeout: float = 300.0):
        argv = ["python3", "-I", "-S", program.path(), "kernel", *arguments]
        return self.host.exec(*argv, check=check, timeout=timeout)

    def sh(self, script: str, *arguments: str, check: bool = True, timeout: float = 300.0) -> str:
        done = self.host.exec("sh", "-c", script, "sh", *arguments, check=check, timeout=timeout)
        return done.stdout

    def request(self, *cmake: str, **changes: Any) -> requests.Request:
        """A request for this host; `cmake`: arguments that make its key its own."""
        arch = changes.pop("arch", "120a")
        inputs = keys.Inputs(
            commit=self.commit,
            patches=(),
            torch=self.facts["torch"],
            cuda="none",
            python=self.facts["python"],
            machine=self.facts["machine"],
            arch=arch,
            flags=requests.cmake_flags(arch, cmake),
        )
        values: dict[str, Any] = {
            "key": keys.make(inputs),
            "inputs": inputs,
            "git_url": SOURCE,
            "venv": VENV,
            "pip_arguments": ("--no-index", "--find-links=/srv/wheels"),
        }
        return requests.Request(**{**values, **changes})

    def put(self, request: requests.Request) -> str:
        """Write the request where a deploy would; returns its key."""
        path = f"{CACHE}/.build/{request.key}/request.json"
        self.host.copy_in(requests.dump(request).encode(), path)
        return request.key

    def start(self, request: requests.Request) -> str:
        key = self.put(request)
        return self.ctl("build", f"{CACHE}/.build/{key}/request.json").stdout.split()[0]

    def follow(self, key: str) -> tuple[str, list[dict[str, Any]]]:
        """Wait for the end; (built, failed or gone, all events)."""
        offset, events = 0, []
        while True:
            lines = self.ctl("build", f"--follow={key}", f"--from={offset}", "--wait=10").stdout
            *found, last = lines.splitlines()
            events += [json.loads(line) for line in found]
            _, _, position, status = last.split()
            offset = int(position)
            if status != "-":
                return {"0": "built", "1": "failed"}.get(status, status), events

    def build(self, request: requests.Request) -> tuple[str, list[dict[str, Any]]]:
        self.start(request)
        return self.follow(request.key)

    def wait_for_step(
        self,
        key: str,
        text: str,
        timeout_s: float = 120.0,
        still: Callable[[], bool] = lambda: True,
    ) -> None:
        """Until the journal of a build has this text, or no longer `still`."""
        end = time.monotonic() + timeout_s
        while text not in self.sh(f"cat {CACHE}/.build/{key}/journal.jsonl 2>/dev/null || true"):
            if not still():
                return
            assert time.monotonic() < end, f"no {text} within {timeout_s} s"
            time.sleep(0.3)

    def wait_for_progress(self, key: str, steps: int, timeout_s: float = 400.0) -> None:
        """Until this run of the build has finished so many of ninja's steps."""
        end = time.monotonic() + timeout_s
        while True:
            text = self.sh(f"cat {CACHE}/.build/{key}/journal.jsonl 2>/dev/null || true")
            if any(event.get("done", 0) >= steps for event in journal.events(text.splitlines())):
                return
            assert time.monotonic() < end, f"not {steps} steps within {timeout_s} s"
            time.sleep(0.3)
