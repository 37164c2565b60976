"""A CUDA toolkit for the tests: this machine's, else one put together from PyPI's wheels."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from sglangctl.sgl_kernel.build import toolkit
from sglangctl.sgl_kernel.library import cubins
from tests.hosts.say import CACHE, run

WHEELS = (
    *("nvidia-cuda-nvcc>=13,<14", "nvidia-nvvm>=13,<14", "nvidia-cuda-crt>=13,<14"),
    *("nvidia-cuda-runtime>=13,<14", "nvidia-cuda-cccl>=13,<14"),
)
MADE = CACHE / "kernel-tests"


def toolkit_home() -> Path:
    """The root of a toolkit with bin/nvcc."""
    found = toolkit.find()
    return Path(found.home).resolve() if found else _from_wheels()


def cuobjdump() -> Path:
    """The folder with cuobjdump's program, from the toolkit or from PyPI."""
    found = cubins.find_cuobjdump()
    if found:
        return Path(found).resolve()
    folder = MADE / "cuobjdump"
    if not (folder / ".complete").exists():
        _fetch(folder, cubins.PACKAGE)
    return next(folder.glob("nvidia/cu*/bin/cuobjdump")).resolve()


def tools() -> Path:
    """A folder with wheels of what a build gets from PyPI, fetched once: the tests are not about
    the index, and a host's own pip takes them from here."""
    folder = MADE / "wheels"
    if not (folder / ".complete").exists():
        from sglangctl.sgl_kernel.build.environment import TOOLS

        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        command = [sys.executable, "-m", "pip", "download", "--quiet", "--dest", str(folder)]
        version = ["--python-version=3.11", "--only-binary=:all:"]
        run([*command, *version, *TOOLS], "Fetching CMake, ninja and scikit-build-core")
        (folder / ".complete").touch()
    return folder


def _from_wheels() -> Path:
    folder = MADE / "cuda"
    if not (folder / ".complete").exists():
        _fetch(folder, *WHEELS)
        home = next(folder.glob("nvidia/cu*"))
        # The wheels have lib/libcudart.so.13 alone; CMake links against libcudart.so and lib64.
        for library in (home / "lib").glob("*.so.*"):
            plain = library.with_name(library.name.split(".so.")[0] + ".so")
            if not plain.exists():
                plain.symlink_to(library.name)
        if not (home / "lib64").exists():
            (home / "lib64").symlink_to("lib")
        for program in (*home.glob("bin/*"), *home.glob("nvvm/bin/*")):
            program.chmod(0o755)
    return next(folder.glob("nvidia/cu*")).resolve()


def _fetch(folder: Path, *packages: str) -> None:
    folder.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder.parent) as fresh:
        command = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps"]
        run([*command, "--target", fresh, *packages], f"Fetching {' '.join(packages)}")
        shutil.rmtree(folder, ignore_errors=True)
        os.replace(fresh, folder)
        Path(fresh).mkdir()
    (folder / ".complete").touch()


def repository(folder: Path, project: Path) -> str:
    """A git repository with the project's files; returns its one commit."""
    shutil.copytree(project, folder)
    author = ["-c", "user.name=test", "-c", "user.email=test@example.org"]
    for arguments in (
        ["init", "--quiet"],
        ["add", "--all", "--force"],
        [*author, "commit", "--quiet", "--message=kernel"],
    ):
        # A fixed date: the same files are the same commit on every run.
        date = "2026-01-01T00:00:00Z"
        subprocess.run(
            ["git", "-C", str(folder), *arguments],
            check=True,
            env={**os.environ, "GIT_AUTHOR_DATE": date, "GIT_COMMITTER_DATE": date},
        )
    head = ["git", "-C", str(folder), "rev-parse", "HEAD"]
    return subprocess.run(head, check=True, capture_output=True, text=True).stdout.strip()
