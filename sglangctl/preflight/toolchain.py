"""What kernels are compiled with while the engine runs, on the PATH that its unit has."""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Iterable, Iterator
from pathlib import Path

from sglangctl.diagnosis.finding import FAIL, WARN, Finding
from sglangctl.gpu import gpus
from sglangctl.masking.masker import read_env
from sglangctl.preflight import model
from sglangctl.preflight.catalog import finding
from sglangctl.preflight.versions import parts
from sglangctl.sgl_kernel import venv as venvs
from sglangctl.sgl_kernel.build import toolkit
from sglangctl.sgl_kernel.venv import Torch
from sglangctl.state.config import EngineConfig
from sglangctl.systemd import confined
from sglangctl.util.errors import Unusable
from sglangctl.util.plain_files import text_of

JIT_SINCE = (0, 5, 16)
"""Of SGLang: this one was seen to end where ninja was missing (measured on two H200s)."""
SM120 = "12."
SM120_NVCC = (12, 9)
CHOOSE = ("NVCC_CCBIN", "NVCC_PREPEND_FLAGS", "NVCC_APPEND_FLAGS", "CUDAHOSTCXX")
"""With one of them nvcc may take another compiler, or none of its checks."""
ASK_S = 30.0
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
    # The engine's environment comes first on that path: with its user's rights, for as nobody it could
    # end what else of the host runs as nobody.
    user = model.reader_of(engine.user)
    path, found = environment.get("PATH", os.defpath), toolkit.find(environment, user)
    chosen = any(name in environment for name in CHOOSE)
    return list(
        judge(
            engine,
            path,
            found.release if found else None,
            newest_gcc(Path(found.home)) if found and not chosen else None,
            _gcc(path, user),
            torch.cuda_major,
            capabilities,
        )
    )


def judge(
    engine: EngineConfig,
    path: str,
    nvcc: str | None,
    newest_gcc: int | None,
    gcc: int | None,
    torch_cuda: int | None,
    capabilities: Iterable[str],
) -> Iterator[Finding]:
    """Pure but for looking programs up on `path`.

    + nvcc: its release, `13.0`; None: there is none
    + newest_gcc: the major version of GCC up to which nvcc takes it; gcc: the one on `path`
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
    elif gcc is not None and newest_gcc is not None and gcc > newest_gcc:
        yield finding(
            "toolchain-compiler",
            level,
            f"g++ is {gcc}, and nvcc refuses what is newer than {newest_gcc}",
            f"apt-get install g++-{newest_gcc}, and set `environment: {{NVCC_CCBIN: "
            f"/usr/bin/g++-{newest_gcc}}}`",
        )
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


def newest_gcc(home: Path) -> int | None:
    """What the toolkit's own check of its host compiler takes at most."""
    text = text_of(home / "include/crt/host_config.h")
    found = re.search(r"^#if __GNUC__ > (\d{1,3})\s*$", text, re.M)
    return int(found[1]) if found else None


def _gcc(path: str, user: str) -> int | None:
    """The major version of the GCC that nvcc would take; None for none and for clang. Root asks as
    `user`."""
    program = shutil.which("g++", path=path)
    if program is None:
        return None
    who = user if os.geteuid() == 0 else None
    try:
        ended = confined.run([program, "-dumpfullversion"], who, limit_s=ASK_S)
    except (OSError, KeyError):
        return None
    found = re.match(rb"(\d{1,3})\.", ended.stdout)
    return int(found[1]) if found and ended.returncode == 0 else None


def _torch(venv: str) -> Torch | None:
    try:
        return venvs.load(Path(venv)).torch()
    except (Unusable, OSError):
        return None
