"""The architectures in a kernel library, by cuobjdump, and which GPUs they run on."""

from __future__ import annotations

import os
import pwd
import re
import shutil
import subprocess
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from sglangctl.state import build_user
from sglangctl.state.paths import Paths
from sglangctl.systemd import confined
from sglangctl.util import lazy_re, os_errors
from sglangctl.util.errors import Unusable

PACKAGE = "nvidia-cuda-cuobjdump"
PIP_OPTIONS = ("--quiet", "--disable-pip-version-check", "--no-deps")
PIP_S = 1800.0
ENTRY = lazy_re.compile(r"\.sm_(\d+[af]?)\.(?:cubin|ptx)$")
NAME = lazy_re.compile(r"(?:sm_?|compute_)?(\d{2,3})([af]?)", re.IGNORECASE)


class CubinError(Unusable):
    """cuobjdump could not read a file; the text is its own."""


@dataclass(frozen=True)
class Architectures:
    """Of one library: how many cubins (machine code) per architecture, and PTX (compiled by the
    driver at load time). Names as in `120a`, without `sm_`."""

    cubins: Mapping[str, int]
    ptx: tuple[str, ...] = ()


def find_cuobjdump(paths: Paths | None = None) -> str | None:
    """The host toolkit's cuobjdump, else the one of our tool folder, else None."""
    homes = [os.environ.get(name) for name in ("CUDA_HOME", "CUDA_PATH")]
    folders = [Path(home) / "bin" for home in homes if home]
    for folder in folders:
        if os.access(folder / "cuobjdump", os.X_OK):
            return str(folder / "cuobjdump")
    on_path = shutil.which("cuobjdump")
    if on_path:
        return on_path
    candidates = [
        *sorted(Path("/usr/local").glob("cuda*/bin/cuobjdump")),
        *map(Path, programs(tool_folder(paths))),
    ]
    return next((str(path) for path in reversed(candidates) if os.access(path, os.X_OK)), None)


def programs(folder: Path) -> list[str]:
    """The cuobjdump of the PyPI package in `folder`."""
    return sorted(map(str, folder.glob("nvidia/cu*/bin/cuobjdump")))


def tool_folder(paths: Paths | None = None) -> Path:
    """Where fetch_cuobjdump puts the PyPI package."""
    return (paths or Paths()).kernel_cache / ".tools"


def fetch_cuobjdump(
    python: str = sys.executable, paths: Paths | None = None, pip_arguments: Sequence[str] = ()
) -> str:
    """Install the PyPI package into our tool folder, with that Python's pip; returns the program.

    + pip_arguments: where it comes from; none that only `pip install` has

    CubinError when pip cannot (no network, no pip).
    """
    folder = tool_folder(paths)
    fresh = folder.with_name(f".tools-{os.getpid()}")
    fresh.parent.mkdir(parents=True, exist_ok=True)
    argv = [python, "-I", "-m", "pip", "install", *PIP_OPTIONS, "--target", str(fresh)]
    argv += [*pip_arguments, "--", PACKAGE]
    done = build_user.run(argv, paths or Paths(), limit_s=PIP_S, filled=[fresh])
    if done.returncode != 0:
        shutil.rmtree(fresh, ignore_errors=True)
        said = confined.refusal(done)
        raise CubinError(f"{PACKAGE} could not be installed ({said}); install the CUDA toolkit")
    shutil.rmtree(folder, ignore_errors=True)
    os.replace(fresh, folder)
    found = find_cuobjdump(paths)
    if found is None:
        raise CubinError(f"{PACKAGE} was installed but holds no cuobjdump for this machine")
    return found


def read(path: Path, cuobjdump: str) -> Architectures:
    """What is in `path`; CubinError when cuobjdump cannot read it."""
    return Architectures(
        cubins=_listed(path, cuobjdump, "--list-elf"),
        ptx=tuple(sorted(_listed(path, cuobjdump, "--list-ptx"))),
    )


def parse(output: str) -> dict[str, int]:
    """Architecture -> number of entries, from `cuobjdump --list-elf` or `--list-ptx`."""
    found: dict[str, int] = {}
    for line in output.splitlines():
        match = ENTRY.search(line.strip())
        if match:
            found[match.group(1)] = found.get(match.group(1), 0) + 1
    return dict(sorted(found.items(), key=lambda item: _order(item[0])))


def parse_arch(text: str) -> str:
    """`120`, `12.0`, `sm_120a` -> `120`, `120`, `120a`; ValueError for anything else."""
    match = NAME.fullmatch(text.strip().replace(".", ""))
    if not match:
        raise ValueError(f"{text!r} is not a GPU architecture; write 120, 12.0 or sm_120a")
    return match.group(1) + match.group(2).lower()


def runs_on(cubin: str, gpu: str) -> bool:
    """Whether machine code for `cubin` runs on the GPU architecture `gpu` (`120`).

    CUDA's rule: same major, minor not above the GPU's; with `a` (architecture-specific) exactly
    this one; `f` (family) like the plain rule within the family.
    """
    (major, minor, kind), (own_major, own_minor, _) = _split(cubin), _split(gpu)
    if major != own_major:
        return False
    return minor == own_minor if kind == "a" else minor <= own_minor


def ptx_runs_on(ptx: str, gpu: str) -> bool:
    """Whether the driver can compile PTX for `ptx` on `gpu`: any later GPU, but `a` only exactly
    this one and `f` only within the family."""
    (major, minor, kind), (own_major, own_minor, _) = _split(ptx), _split(gpu)
    if kind == "a":
        return (major, minor) == (own_major, own_minor)
    if kind == "f":
        return major == own_major and minor <= own_minor
    return (major, minor) <= (own_major, own_minor)


def fitting(found: Architectures, gpu: str) -> list[str]:
    """The cubins, then the PTX, that run on `gpu`; empty means "no kernel image"."""
    names = [name for name in found.cubins if runs_on(name, gpu)]
    return names + [f"{name} (PTX)" for name in found.ptx if ptx_runs_on(name, gpu)]


def show(names: Iterable[str]) -> str:
    """`80, 90, 120a`, or `none`."""
    return ", ".join(names) or "none"


def _listed(path: Path, cuobjdump: str, option: str) -> dict[str, int]:
    try:
        done = subprocess.run(
            [*_without_rights(cuobjdump), cuobjdump, option, str(path)],
            env=confined.kept(os.environ, confined.KEPT),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="backslashreplace",
            timeout=600,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise CubinError(f"cuobjdump did not run: {os_errors.describe(error)}") from None
    found = parse(done.stdout)
    # "No PTX file found" and "does not contain device code" are answers, not failures.
    said = f"{done.stdout}\n{done.stderr}"
    if done.returncode and not found and "does not contain device code" not in said:
        lines = [line for line in said.splitlines() if line.strip()]
        if not any("info" in line for line in lines):
            raise CubinError(lines[-1] if lines else f"cuobjdump ended with {done.returncode}")
    return found


def _without_rights(cuobjdump: str) -> list[str]:
    """What goes before a cuobjdump that came from a package index, which root does not run: it only
    reads one library."""
    if os.geteuid() != 0 or ".tools" not in Path(cuobjdump).parts:
        return []
    rights = ["--reuid=nobody", f"--regid={pwd.getpwnam('nobody').pw_gid}", "--clear-groups"]
    return ["setpriv", *rights, "--no-new-privs", "--bounding-set=-all", "--"]


def _split(name: str) -> tuple[int, int, str]:
    kind = name[-1] if name[-1] in "af" else ""
    digits = int(name[: len(name) - len(kind)])
    return digits // 10, digits % 10, kind


def _order(name: str) -> tuple[int, str]:
    return int(re.sub(r"\D", "", name)), name
