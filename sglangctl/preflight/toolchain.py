"""What kernels are compiled with while the engine runs, on the PATH that its unit has."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

from sglangctl.diagnosis.finding import FAIL, WARN, Finding
from sglangctl.gpu import gpus
from sglangctl.masking.masker import read_env
from sglangctl.preflight.catalog import finding
from sglangctl.preflight.versions import parts
from sglangctl.sgl_kernel import venv as venvs
from sglangctl.sgl_kernel.build import toolkit
from sglangctl.sgl_kernel.venv import Torch
from sglangctl.state.config import EngineConfig
from sglangctl.util.errors import Unusable

JIT_SINCE = (0, 5, 16)
"""Of SGLang: this one was seen to end where ninja was missing (measured on two H200s)."""
SM120 = "12."
SM120_NVCC = (12, 9)
COMPILERS = ("c++", "g++", "clang++")


def look(engine: EngineConfig, venv: str, release: Path) -> list[Finding]:
    """nvcc, ninja and a C++ compiler; nothing of it for `device: cpu`, nor for an environment
    without torch, which compiles nothing."""
    torch = None if engine.preflight.device == "cpu" else _torch(venv)
    if torch is None:
        return []
    try:
        environment = read_env(release / "engine.env")
    except OSError:
        environment = {}
    capabilities = {gpu.compute_capability or "" for gpu in gpus.sample() or ()}
    return list(
        judge(
            engine,
            environment.get("PATH", os.defpath),
            _nvcc(environment),
            torch.cuda_major,
            capabilities,
        )
    )


def judge(
    engine: EngineConfig,
    path: str,
    nvcc: str | None,
    torch_cuda: int | None,
    capabilities: Iterable[str],
) -> Iterator[Finding]:
    """Pure but for looking programs up on `path`.

    + nvcc: its release, `13.0`; None: there is none
    + torch_cuda: the major version of CUDA that the engine's torch is built for
    + capabilities: of the host's GPUs, `12.0`
    """
    level = FAIL if parts(engine.version) >= JIT_SINCE else WARN
    if shutil.which("ninja", path=path) is None:
        fix = "apt-get install ninja-build, or add ninja to install.packages"
        yield finding("toolchain-ninja", level, f"ninja is not on the unit's PATH ({path})", fix)
    if not any(shutil.which(name, path=path) for name in COMPILERS):
        fix = "apt-get install g++"
        seen = f"no C++ compiler is on the unit's PATH ({path})"
        yield finding("toolchain-compiler", level, seen, fix)
    if nvcc is None:
        yield finding(
            "toolchain-nvcc",
            level,
            "no nvcc: neither in CUDA_HOME nor on the unit's PATH",
            "install a CUDA toolkit, and set `environment: {CUDA_HOME: ...}` if it is elsewhere",
            "12.9 or newer",
        )
        return
    if any(one.startswith(SM120) for one in capabilities) and parts(nvcc) < SM120_NVCC:
        yield finding(
            "toolchain-nvcc",
            FAIL,
            f"nvcc is {nvcc}, and the GPUs are of compute capability 12",
            "install a newer CUDA toolkit, and set `environment: {CUDA_HOME: ...}` to it",
            "12.9 or newer",
        )
    elif torch_cuda is not None and parts(nvcc)[:1] != (torch_cuda,):
        yield finding(
            "toolchain-nvcc",
            WARN,
            f"nvcc is {nvcc}, and the engine's torch is built for CUDA {torch_cuda}",
            "set `environment: {CUDA_HOME: ...}` to a toolkit of that version",
            f"CUDA {torch_cuda}",
        )


def _nvcc(environment: Mapping[str, str]) -> str | None:
    found = toolkit.find(environment)
    return found.release if found else None


def _torch(venv: str) -> Torch | None:
    try:
        return venvs.load(Path(venv)).torch()
    except (Unusable, OSError):
        return None
