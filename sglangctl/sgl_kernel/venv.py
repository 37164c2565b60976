"""A Python environment looked at from outside: its Python, its torch, its kernel distributions.

Nothing is imported there: an environment whose torch or kernel is broken must still be readable.
"""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from pathlib import Path

from sglangctl.util import lazy_re
from sglangctl.util.errors import Unusable
from sglangctl.util.plain_files import text_of

DISTRIBUTIONS = ("sglang-kernel", "sgl-kernel")
"""Both own the folder sgl_kernel/; the second was the name up to 0.3.21."""
TORCH_LIBRARIES = ("libc10*.so", "libtorch*.so", "libshm.so")
FOLDER = lazy_re.compile(r"python3\.([0-9]{1,2})")
VERSION_LINE = lazy_re.compile(r"^__version__\s*=\s*'([^']+)'", re.MULTILINE)
CUDA_LINE = lazy_re.compile(r"^cuda\b[^=\n]*=\s*'([^']+)'", re.MULTILINE)
REQUIRED = lazy_re.compile(
    r"assert_pkg_version\(\s*\"(sgl(?:ang)?-kernel)\",\s*\"([0-9.]+)\"", re.S
)
PINNED = lazy_re.compile(
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
            text = text_of(folder / "torch/version.py")
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

        Read in its source, sglang/srt/entrypoints/engine.py; None when it does not exist.
        """
        for folder in self.path:
            if text := text_of(folder / "sglang/srt/entrypoints/engine.py"):
                match = REQUIRED.search(text)
                return (match.group(1), match.group(2)) if match else None
        return None

    def pinned_kernel(self) -> tuple[str, str] | None:
        """(distribution, version) that the installed SGLang's metadata pins; None: it does not."""
        for folder in self.path:
            for path in folder.glob("sglang-*.dist-info/METADATA"):
                match = PINNED.search(text_of(path))
                if match:
                    return match.group(1), match.group(2)
        return None


def load(root: Path) -> Venv:
    """From its files: its own Python would run what packages left in .pth files, with the rights of
    whoever asks. Unusable when there is none that could run."""
    python = root / "bin/python"
    found = [FOLDER.fullmatch(folder.name) for folder in sorted(root.glob("lib/python3.*"))]
    versions = sorted(int(match[1]) for match in found if match)
    if not versions or not os.access(python, os.X_OK) or not python.is_file():
        raise Unusable(f"{python} does not run (it is incomplete); deploy again to create it again")
    version = (3, versions[-1])
    sites = [root / f"{lib}/python3.{version[1]}/site-packages" for lib in ("lib", "lib64")]
    if (root / "lib64").is_symlink():
        del sites[1]
    settings = _settings(root / "pyvenv.cfg")
    if settings.get("include-system-site-packages") == "true":
        prefix = Path(settings.get("home", "/usr/bin")).parent
        sites += [
            prefix / f"local/lib/python3.{version[1]}/dist-packages",
            prefix / f"lib/python3.{version[1]}/site-packages",
            prefix / "lib/python3/dist-packages",
        ]
    path = [one for site in sites if site.is_dir() for one in (site, *_added(site))]
    return Venv(root, python, version, tuple(dict.fromkeys(path)), os.uname().machine)


def _settings(file: Path) -> dict[str, str]:
    pairs = (line.partition("=") for line in text_of(file).splitlines())
    return {name.strip().lower(): value.strip() for name, _, value in pairs}


def _added(site: Path) -> list[Path]:
    """The folders that .pth files add to sys.path; their lines of code are not run."""
    found = []
    for file in sorted(site.glob("*.pth")):
        entries = [line.strip() for line in text_of(file).splitlines()]
        found += [site / word for word in entries if word and not word.startswith(("#", "import"))]
    return [folder for folder in found if os.path.isdir(folder)]  # which takes any name


def dist_infos(site: Path) -> dict[str, list[Path]]:
    """Kernel distribution -> its .dist-info folders in `site`."""
    found: dict[str, list[Path]] = {}
    for name in DISTRIBUTIONS:
        stem = name.replace("-", "_")
        folders = sorted(site.glob(f"{stem}-*.dist-info"))
        if folders:
            found[name] = folders
    return found
