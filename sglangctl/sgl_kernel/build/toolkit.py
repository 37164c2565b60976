"""The CUDA compiler of this host: where it is and which version."""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from sglangctl.systemd import confined
from sglangctl.util import lazy_re
from sglangctl.util.plain_files import descriptor

ASK_S = 30.0
RELEASE = lazy_re.compile(r"release (\d+)\.(\d+), V([\d.]+)")


@dataclass(frozen=True)
class Toolkit:
    """`release` is what decides (`13.0`), `version` the full one (`13.0.88`)."""

    nvcc: str
    home: str
    release: str
    version: str


def find(environment: Mapping[str, str] | None = None, user: str = "nobody") -> Toolkit | None:
    """CUDA_HOME or CUDA_PATH, then nvcc on PATH, then the newest /usr/local/cuda*; None: none. `user`:
    whose environment that is, as whom root asks."""
    variables = os.environ if environment is None else environment
    candidates = [
        Path(variables[name]) / "bin/nvcc"
        for name in ("CUDA_HOME", "CUDA_PATH")
        if variables.get(name)
    ]
    on_path = shutil.which("nvcc", path=variables.get("PATH"))
    if on_path:
        candidates.append(Path(on_path))
    candidates.append(Path("/usr/local/cuda/bin/nvcc"))
    candidates += sorted(Path("/usr/local").glob("cuda-*/bin/nvcc"), key=_by_version, reverse=True)
    for nvcc in candidates:
        found = ask(nvcc, user)
        if found:
            return found
    return None


def ask(nvcc: Path, user: str) -> Toolkit | None:
    """What this nvcc says of itself; None when it does not run.

    Root does not run it with its own rights: a package may have put it into an environment, or a
    user into the folder that CUDA_HOME names.
    """
    if not os.access(nvcc, os.X_OK):
        return None
    who = user if os.geteuid() == 0 else None
    try:
        ended = confined.run([str(nvcc), "--version"], who, limit_s=ASK_S)
    except (OSError, KeyError):
        return None
    match = RELEASE.search(ended.stdout.decode("utf-8", "backslashreplace"))
    if ended.returncode != 0 or not match:
        return None
    return Toolkit(
        str(nvcc), str(home_of(nvcc)), f"{match.group(1)}.{match.group(2)}", match.group(3)
    )


def home_of(nvcc: Path) -> Path:
    """The toolkit's root. A wrapper script outside of one (`exec /usr/local/cuda-13.0/bin/nvcc`)
    is looked into, because CMake and the JIT compilers want the real folder."""
    real = nvcc.resolve()
    if (real.parent.parent / "include/cuda_runtime.h").exists():
        return real.parent.parent
    try:
        with open(descriptor(real), "rb") as file:
            text = file.read(4096).decode("utf-8", "ignore")
    except OSError:
        text = ""
    named = re.search(r"(/\S+)/bin/nvcc\b", text) if text.startswith("#!") else None
    if named and (Path(named.group(1)) / "include/cuda_runtime.h").exists():
        return Path(named.group(1))
    default = Path("/usr/local/cuda")
    return default if (default / "include/cuda_runtime.h").exists() else real.parent.parent


def _by_version(path: Path) -> tuple[int, ...]:
    return tuple(int(part) for part in re.findall(r"\d+", path.parts[-3]))
