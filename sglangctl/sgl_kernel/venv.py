"""A Python environment looked at from outside: its Python, its torch, its kernel distributions.

Nothing is imported there: an environment whose torch or kernel is broken must still be readable.
"""

from __future__ import annotations

import json
import re
import subprocess
from dataclasses import dataclass
from pathlib import Path

from sglangctl.util import os_errors
from sglangctl.util.errors import Unusable

DISTRIBUTIONS = ("sglang-kernel", "sgl-kernel")
"""Both own the folder sgl_kernel/; the second was the name up to 0.3.21."""
TORCH_LIBRARIES = ("libc10*.so", "libtorch*.so", "libshm.so")
ASK = (
    "import json,platform,sys;print(json.dumps([sys.version_info[:2],sys.path,platform.machine()]))"
)
VERSION_LINE = re.compile(r"^__version__\s*=\s*'([^']+)'", re.MULTILINE)
CUDA_LINE = re.compile(r"^cuda\b[^=\n]*=\s*'([^']+)'", re.MULTILINE)
REQUIRED = re.compile(r"assert_pkg_version\(\s*\"(sgl(?:ang)?-kernel)\",\s*\"([0-9.]+)\"", re.S)
PINNED = re.compile(
    r"^Requires-Dist:\s*(sgl(?:ang)?-kernel)\s*\(?==\s*([0-9][\w.+]*)", re.MULTILINE
)


@dataclass(frozen=True)
class Torch:
    """The torch of an environment: `2.14.1+cu130`, the CUDA version it was built for
    (`13.0`, None: a CPU build) and its folder of libraries."""

    version: str
    cuda: str | None
    libraries: Path

    @property
    def cuda_major(self) -> int | None:
        return int(self.cuda.split(".")[0]) if self.cuda else None

    def library_files(self) -> list[Path]:
        return [path for name in TORCH_LIBRARIES for path in sorted(self.libraries.glob(name))]


@dataclass(frozen=True)
class Venv:
    """One environment: `python` is its interpreter, `path` its sys.path."""

    root: Path
    python: Path
    version: tuple[int, int]
    path: tuple[Path, ...]
    machine: str

    @property
    def site_packages(self) -> Path:
        """Its own site-packages, where pip installs."""
        major, minor = self.version
        return self.root / f"lib/python{major}.{minor}/site-packages"

    @property
    def tag(self) -> str:
        """`cp312`."""
        return "cp{}{}".format(*self.version)

    def pip(self, *arguments: str) -> list[str]:
        """Its pip's command line: isolated (-I), because root must not run a pip/ or torch.py that
        lies in the folder one happens to be in; unbuffered, because a log of it is followed."""
        return [str(self.python), "-I", "-u", "-m", "pip", *arguments]

    def torch(self) -> Torch | None:
        """The torch that an import would find; None without one."""
        for folder in self.path:
            try:
                text = (folder / "torch/version.py").read_text(encoding="utf-8")
            except OSError:
                continue
            version, cuda = VERSION_LINE.search(text), CUDA_LINE.search(text)
            if version:
                return Torch(
                    version.group(1), cuda.group(1) if cuda else None, folder / "torch/lib"
                )
        return None

    def kernel_site(self) -> Path:
        """The folder of sys.path whose sgl_kernel an import would take, else its site-packages."""
        for folder in self.path:
            if (folder / "sgl_kernel").is_dir() or dist_infos(folder):
                return folder
        return self.site_packages

    def required_kernel(self) -> tuple[str, str] | None:
        """(distribution, lowest version) that the installed SGLang checks when it starts.

        Read in its source, sglang/srt/entrypoints/engine.py; None when it is not there.
        """
        for folder in self.path:
            try:
                text = (folder / "sglang/srt/entrypoints/engine.py").read_text(encoding="utf-8")
            except OSError:
                continue
            match = REQUIRED.search(text)
            return (match.group(1), match.group(2)) if match else None
        return None

    def pinned_kernel(self) -> tuple[str, str] | None:
        """(distribution, version) that the installed SGLang's metadata pins; None: it does not."""
        for folder in self.path:
            for path in folder.glob("sglang-*.dist-info/METADATA"):
                try:
                    match = PINNED.search(path.read_text(encoding="utf-8"))
                except OSError:
                    continue
                if match:
                    return match.group(1), match.group(2)
        return None


def load(root: Path) -> Venv:
    """Ask the environment's own Python; Unusable when there is none that runs."""
    python = root / "bin/python"
    try:
        done = subprocess.run(
            [str(python), "-I", "-c", ASK],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=60,
            check=True,
        )
        version, path, machine = json.loads(done.stdout)
    except (OSError, subprocess.SubprocessError, ValueError) as error:
        raise Unusable(
            f"{python} does not run ({os_errors.words(error)}); deploy again to make it anew"
        ) from None
    return Venv(
        root,
        python,
        (int(version[0]), int(version[1])),
        tuple(Path(entry) for entry in path if entry and Path(entry).is_dir()),
        str(machine),
    )


def dist_infos(site: Path) -> dict[str, list[Path]]:
    """Kernel distribution -> its .dist-info folders in `site`."""
    found: dict[str, list[Path]] = {}
    for name in DISTRIBUTIONS:
        stem = name.replace("-", "_")
        folders = sorted(site.glob(f"{stem}-*.dist-info"))
        if folders:
            found[name] = folders
    return found
