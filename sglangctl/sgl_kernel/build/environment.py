"""The build's own Python environment: the engine's exact torch, and CMake and ninja from PyPI.

torch is not installed twice: a .pth file makes the engine's packages visible, so what is compiled
against is by construction what will run. Nothing is ever written into the engine's environment.
"""

from __future__ import annotations

import hashlib
import re
import shutil
from pathlib import Path

from sglangctl.sgl_kernel import venv
from sglangctl.sgl_kernel.build import command_line
from sglangctl.sgl_kernel.build.progress import explain
from sglangctl.sgl_kernel.build.record import BuildError
from sglangctl.sgl_kernel.build.request import Request
from sglangctl.util import lazy_re, os_errors
from sglangctl.util.errors import Unusable

TOOLS = ("cmake>=3.31", "ninja", "wheel", "setuptools", "scikit-build-core>=0.10")
"""sgl-kernel's CMakeLists needs 3.31 (policy CMP0177); distributions have older ones."""
STDLIB = lazy_re.compile(r"lib-dynload|python\d[\d.]*")
# --ignore-installed: what the engine's environment has of these would be without its program here.
PIP = (
    "--ignore-installed",
    "--no-compile",
    "--no-input",
    "--disable-pip-version-check",
    "--progress-bar=off",
)
REQUIRES = lazy_re.compile(r"(?ms)^\[build-system\].*?^requires\s*=\s*\[(.*?)\]")


def prepare(request: Request, folder: Path, project: Path, log: Path) -> venv.Venv:
    """Make (or find) the environment in `folder` and check that its torch is the key's; BuildError.

    All builds against the same environment of an engine share one (a build at a time has the
    host's lock), so that a second build, for a patch, does not wait for pip.
    """
    engine = _engine(request)
    wanted = [*TOOLS, *requirements(project)]
    root = folder / _digest(request, engine, wanted)
    if not (root / ".complete").exists():
        shutil.rmtree(root, ignore_errors=True)
        python = str(engine.python) if engine else request.python
        make = [python, "-I", "-m", "venv", str(root)]
        _run(make, log, "the build's environment cannot be made")
        own = venv.load(root)
        if engine:
            lines = [str(path) for path in engine.path if not STDLIB.fullmatch(path.name)]
            (own.site_packages / "engine.pth").write_text("\n".join(lines) + "\n")
        if not engine:
            # The local part (+cu130) is not in the index's names; what came is compared below.
            wanted.append(f"torch=={request.inputs.torch.split('+')[0]}")
        _run(
            own.pip("install", *PIP, *request.pip_arguments, "--", *wanted),
            log,
            f"pip cannot install {' '.join(wanted)}",
        )
        (root / ".complete").touch()
    own = venv.load(root)
    torch = own.torch()
    if torch is None or torch.version != request.inputs.torch:
        shutil.rmtree(root, ignore_errors=True)
        found = torch.version if torch else "none"
        raise BuildError(
            f"the build would see torch {found}, the kernel is wanted for {request.inputs.torch}",
            "deploy again: the environment's torch has changed since the plan",
        )
    return own


def requirements(project: Path) -> list[str]:
    """build-system.requires of pyproject.toml, without torch (that is the engine's).

    Read by a pattern: Python 3.9 and 3.10 have no TOML reader. The list is one of plain strings.
    """
    text = (project / "pyproject.toml").read_text(encoding="utf-8")
    match = REQUIRES.search(text)
    if not match:
        return []
    lines = "\n".join(line.split("#")[0] for line in match.group(1).splitlines())
    names = re.findall(r"\"([^\"]+)\"|'([^']+)'", lines)
    found = [first or second for first, second in names]
    return [name for name in found if re.split(r"[^A-Za-z0-9_.-]", name)[0].lower() != "torch"]


def _digest(request: Request, engine: venv.Venv | None, wanted: list[str]) -> str:
    """What decides the environment: where torch comes from, and what is installed beside it."""
    source = str(engine.root) if engine else request.python
    text = "\n".join([source, request.inputs.torch, *wanted])
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def _engine(request: Request) -> venv.Venv | None:
    if request.venv is None:
        return None
    try:
        return venv.load(Path(request.venv))
    except Unusable as error:
        raise BuildError(str(error), "deploy again") from None


def _run(argv: list[str], log: Path, sentence: str) -> None:
    try:
        done = command_line.run(argv, log)
    except OSError as error:
        raise BuildError(
            f"{sentence}: {os_errors.sentence(error)}", "apt-get install python3-venv"
        ) from None
    if done.returncode:
        fault = explain(done.lines, done.returncode)
        step = fault.next_step
        if any("ensurepip" in line for line in done.lines):
            step = "apt-get install python3-venv (of the engine's Python version)"
        raise BuildError(f"{sentence}: {fault.sentence}", step)
