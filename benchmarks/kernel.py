"""What each step of choosing a kernel costs, and what a build takes of memory.

    python3 -m benchmarks.kernel --tools WHEELS [--stock FOLDER] [--arch 120a] [--heavy 20000]
        [--evidence]

WHEELS: a folder with CMake, ninja and scikit-build-core (tests/kernel/cuda.py fetches one).
FOLDER: holds the stock wheel of sglang-kernel that fits this machine's torch (left out: that rung
is not measured). What is built is the small project of tests/kernel, each of whose compilers
takes about 600 MiB at --heavy 20000. Needs nvcc, g++, git and a torch. Prints a table and JSON.
"""

from __future__ import annotations

import argparse
import os
import platform
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from benchmarks import evidence
from sglangctl.sgl_kernel import cache
from sglangctl.sgl_kernel import key as keys
from sglangctl.sgl_kernel.build import request as requests
from sglangctl.sgl_kernel.venv import Venv, load
from tests.kernel.cuda import repository

ROOT = Path(__file__).resolve().parents[1]


class Bench:
    """One scratch folder with an environment and a source repository."""

    def __init__(self, scratch: Path, arguments: argparse.Namespace) -> None:
        self.arguments, self.scratch = arguments, scratch
        os.environ["SGLANGCTL_ROOT"] = str(scratch / "root")
        root = scratch / "venv"
        command = [sys.executable, "-m", "venv", "--system-site-packages", str(root)]
        subprocess.run(command, check=True)
        own = [path for path in sys.path if path.endswith("-packages")]
        (load(root).site_packages / "own.pth").write_text("\n".join(own) + "\n")
        self.venv: Venv = load(root)
        self.commit = repository(scratch / "source", ROOT / "tests/kernel/project")

    def ctl(self, *words: str) -> str:
        done = subprocess.run(
            [sys.executable, "-m", "sglangctl", "kernel", *words],
            cwd=ROOT,
            capture_output=True,
            text=True,
        )
        if done.returncode:
            raise SystemExit(f"sglangctl kernel {' '.join(words)}: {done.stdout}{done.stderr}")
        return done.stdout

    def build(self, jobs: int | None, name: str) -> dict[str, Any]:
        """A cold build; its provenance."""
        torch = self.venv.torch()
        if torch is None:
            raise SystemExit("this Python has no torch")
        arch, heavy = self.arguments.arch, self.arguments.heavy
        flags = requests.cmake_flags(arch, (f"-DTEST_HEAVY={heavy}", f"-DBENCH={name}"))
        inputs = keys.Inputs(
            self.commit,
            (),
            torch.version,
            torch.cuda or "none",
            self.venv.tag,
            self.venv.machine,
            arch,
            flags,
        )
        request = requests.Request(
            keys.make(inputs),
            inputs,
            str(self.scratch / "source"),
            venv=str(self.venv.root),
            jobs=jobs,
            pip_arguments=("--no-index", f"--find-links={self.arguments.tools.resolve()}"),
        )
        folder = requests.folder(request.key)
        folder.mkdir(parents=True)
        (folder / "request.json").write_text(requests.dump(request))
        self.ctl("build", "--run", request.key)
        entry = cache.find(request.key)
        assert entry is not None
        return entry.provenance


def timed(work: Callable[[], object]) -> float:
    began = time.monotonic()
    work()
    return round(time.monotonic() - began, 2)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--tools", type=Path, required=True)
    parser.add_argument("--stock", type=Path)
    parser.add_argument("--arch", default="120a")
    parser.add_argument("--heavy", type=int, default=20000)
    parser.add_argument(evidence.OPTION, action="store_true")
    arguments = parser.parse_args()
    sm = arguments.arch.rstrip("af")
    result: dict[str, Any] = {
        "architecture": platform.machine(),
        "arch": arguments.arch,
        "heavy": arguments.heavy,
        "rungs_s": {},
        "builds": {},
    }
    with tempfile.TemporaryDirectory(prefix="kernel-bench-") as scratch:
        bench = Bench(Path(scratch), arguments)
        where = (f"--venv={bench.venv.root}", f"--sm={sm}")
        key = ""
        for name, jobs in (("1", 1), ("2", 2), ("auto", None)):
            began = time.monotonic()
            # ccache would make the second build a copy of the first.
            os.environ["CCACHE_DISABLE"] = "1"
            provenance = bench.build(jobs, name)
            key = provenance["key"]
            result["builds"][name] = {
                "jobs": provenance["jobs"],
                "seconds": round(time.monotonic() - began, 1),
                "peak_memory_mib": provenance["peak_memory_mib"],
                "check": provenance["check"]["outcome"],
            }
        rungs = result["rungs_s"]
        rungs["build (auto jobs)"] = result["builds"]["auto"]["seconds"]
        rungs["cache"] = timed(lambda: bench.ctl("install", key, *where))
        rungs["already usable"] = timed(lambda: bench.ctl("survey", *where))
        if arguments.stock:
            local = ["--pip-argument=--no-index", f"--pip-argument=--find-links={arguments.stock}"]
            rungs["stock wheel"] = timed(lambda: bench.ctl("install", "stock", *local, *where))
            result["stock"] = bench.ctl("inspect", "installed", *where).splitlines()[0]
    for name, seconds in sorted(rungs.items(), key=lambda item: item[1]):
        print(f"{name:<20} {seconds:8.2f} s")
    for name, build in result["builds"].items():
        print(
            f"build, jobs {name:<5} {build['seconds']:8.1f} s  {build['peak_memory_mib']:>6} MiB"
            f"  (jobs {build['jobs']})"
        )
    evidence.keep("kernel", result, arguments.evidence)
    return 0


if __name__ == "__main__":
    sys.exit(main())
