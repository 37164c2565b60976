"""Compile the wheel: bounded jobs, fewer of them when a compiler was killed, progress told."""

from __future__ import annotations

import json
import os
import pkgutil
import shlex
import shutil
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sglangctl.sgl_kernel.build import command_line, jobs
from sglangctl.sgl_kernel.build.progress import Meter, explain
from sglangctl.sgl_kernel.build.record import BuildError, Tell
from sglangctl.sgl_kernel.build.request import Request, unused_folder
from sglangctl.sgl_kernel.build.toolkit import Toolkit
from sglangctl.sgl_kernel.venv import Venv

MODULE, REPORT = "one_arch.cmake", "one_arch.json"
TELL_S = 2.0
"""At least this long between two events of progress."""


@dataclass(frozen=True)
class Compiled:
    """`tried`: the jobs of each run; `limited`: whether only one architecture was built."""

    wheel: Path
    tried: tuple[int, ...]
    peak_mib: float
    limited: bool
    limited_reason: str


@dataclass(frozen=True)
class Place:
    """The folders of one build: `work` its own, which the build user fills, `cache` all builds'."""

    work: Path
    cache: Path

    @property
    def log(self) -> Path:
        return self.work / "build.log"

    @property
    def environments(self) -> Path:
        return self.cache / ".environments"

    @property
    def own(self) -> list[Path]:
        """All that the build user may write to; the last three serve the next build, too."""
        return [
            self.work,
            self.environments,
            self.cache / ".ccache",
            self.cache / ".third-party",
        ]


def build(
    request: Request,
    place: Place,
    project: Path,
    tools: Venv,
    toolkit: Toolkit,
    plan: jobs.Jobs,
    record: Tell,
) -> Compiled:
    """Run the build until it ends well; halve the jobs after a killed compiler, down to one."""
    report = _inject(place.work)
    number, tried, peak = plan.jobs, [], 0.0
    while True:
        tried.append(number)
        output = place.work / "dist"
        shutil.rmtree(output, ignore_errors=True)
        meter = Meter()
        done = command_line.run(
            command(tools, place.work, output),
            place.log,
            _teller(meter, record),
            variables(request, place, tools, toolkit, number),
            project,
        )
        peak = max(peak, done.peak_mib)
        if done.returncode == 0:
            wheels = sorted(output.glob("*.whl"))
            if len(wheels) != 1:
                raise BuildError(f"the build left {len(wheels)} wheels", "read its log")
            limited, reason = read_report(report)
            return Compiled(wheels[0], tuple(tried), peak, limited, reason)
        fault = explain(done.lines, done.returncode)
        fewer = jobs.fewer(number) if fault.memory else None
        if fewer is None:
            if fault.memory:
                raise BuildError(
                    f"a compiler was killed for lack of memory even with one job: its processes "
                    f"had {peak / 1024:.1f} GiB at the peak, the limit is "
                    f"{plan.memory_max_mib / 1024:.1f} GiB ({plan.reason})",
                    f"free memory (about {(peak + jobs.RESERVE_MIB) / 1024:.0f} GiB are needed), "
                    "stop the engine for the build, or name a kernel.build_host with more",
                )
            raise BuildError(fault.sentence, f"{fault.next_step} (log: {place.log})")
        record(
            "retry",
            text=f"{fault.sentence} with {number} jobs at {peak / 1024:.1f} GiB; continuing with "
            f"{fewer} in the same build folder",
            jobs=fewer,
            line=fault.line,
        )
        number = fewer


def command(tools: Venv, root: Path, output: Path) -> list[str]:
    """pip, building a wheel from the source as it is, with a build folder that is kept."""
    return tools.pip(
        *["wheel", "-v", "--no-input", "--disable-pip-version-check"],
        *["--no-build-isolation", "--no-deps", "--no-cache-dir"],
        f"--config-settings=build-dir={root / 'build'}",
        *["--wheel-dir", str(output), "--", "."],
    )


def variables(
    request: Request, place: Place, tools: Venv, toolkit: Toolkit, number: int
) -> dict[str, str]:
    """The build's environment. CMAKE_BUILD_PARALLEL_LEVEL is what limits the jobs: neither
    scikit-build-core nor CMake reads MAX_JOBS, which is set for sources that do."""
    temporary = place.work / "tmp"
    temporary.mkdir(exist_ok=True)
    arguments = [
        *request.inputs.flags,
        f"-DSGL_KERNEL_COMPILE_THREADS={request.nvcc_threads}",
        f"-DCMAKE_PROJECT_TOP_LEVEL_INCLUDES={place.work / MODULE}",
        f"-DSGLANGCTL_ARCH={request.arch}",
        f"-DSGLANGCTL_UNUSED={unused_folder(request.arch)}",
        f"-DSGLANGCTL_REPORT={place.work / REPORT}",
        f"-DFETCHCONTENT_BASE_DIR={third_party(request, place)}",
    ]
    values = {
        "PATH": f"{tools.root / 'bin'}:{Path(toolkit.home) / 'bin'}:{os.environ.get('PATH', '')}",
        "CUDA_HOME": toolkit.home,
        "CUDA_PATH": toolkit.home,
        "CUDACXX": os.environ.get("CUDACXX") or toolkit.nvcc,
        "CMAKE_GENERATOR": "Ninja",
        "CMAKE_BUILD_PARALLEL_LEVEL": str(number),
        "MAX_JOBS": str(number),
        "CMAKE_ARGS": shlex.join(arguments),
        "NINJA_STATUS": "[%f/%t] ",
        "CCACHE_DIR": str(place.cache / ".ccache"),
        "TMPDIR": str(temporary),  # /tmp may be memory, and nvcc's files are gigabytes
        "PYTHONUNBUFFERED": "1",
        "LC_ALL": "C.UTF-8",
        "HOME": os.environ.get("HOME") or str(place.work),
    }
    if request.policy_version_minimum:
        values["CMAKE_POLICY_VERSION_MINIMUM"] = request.policy_version_minimum
    return values


def third_party(request: Request, place: Place) -> Path:
    """Third-party sources, shared by all builds of one commit."""
    return place.cache / ".third-party" / request.inputs.commit[:16]


def read_report(path: Path) -> tuple[bool, str]:
    """Whether one architecture was built, and if not, why."""
    try:
        document: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        return bool(document["limited"]), str(document["reason"])
    except (OSError, ValueError, KeyError, TypeError):
        return False, "the CMake module was not called (CMake below 3.24?)"


def _inject(root: Path) -> Path:
    data = pkgutil.get_data("sglangctl.sgl_kernel.build", MODULE)
    if data is None:
        raise BuildError(f"{MODULE} is not in this program", "deploy again")
    path = root / MODULE
    # CMake configures again when the file is newer, so it is written only when it differs.
    if not path.exists() or path.read_bytes() != data:
        path.write_bytes(data)
    return root / REPORT


def _teller(meter: Meter, record: Tell) -> Callable[[str, float], None]:
    last = [-TELL_S]

    def tell(line: str, memory_mib: float) -> None:
        now = time.monotonic()
        found = meter.feed(line, now)
        if found and (now - last[0] >= TELL_S or found.done == found.total):
            last[0] = now
            record(
                "compile",
                done=found.done,
                total=found.total,
                eta_s=None if found.eta_s is None else round(found.eta_s, 1),
                memory_mib=round(memory_mib, 1),
            )

    return tell
