"""Kernels as they lie on a disk, made from any real shared object, for tests without a compiler."""

from __future__ import annotations

import base64
import hashlib
import stat
import sys
import zipfile
from pathlib import Path

import gevent
import pytest

LIBRARY = next(Path(gevent.__file__).parent.rglob("*.so"))
"""A real ELF file that is always here (pyinfra needs gevent)."""
LISTING = "ELF file    {index}: common_ops.abi3.{index}.sm_{arch}.cubin\n"
NO_PTX = "cuobjdump info    : No PTX file found to extract from 'x'. You may try with -all option."


takes_the_wheel = pytest.mark.skipif(
    sys.version_info < (3, 10), reason="the kernel's wheels are for Python 3.10 and newer"
)


def cuobjdump(folder: Path, *archs: str, ptx: str = "") -> str:
    """A program that answers as cuobjdump does for a library with these architectures."""
    path = folder / "cuobjdump"
    elf = "".join(LISTING.format(index=i, arch=arch) for i, arch in enumerate(archs, 1))
    listed = f"PTX file    1: common_ops.abi3.1.sm_{ptx}.ptx" if ptx else NO_PTX
    path.write_text(
        f'#!/bin/sh\nif [ "$1" = --list-elf ]; then printf "%s" "{elf}"; else echo "{listed}"; fi\n'
    )
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return str(path)


def files(name: str = "sglang-kernel", version: str = "0.4.10", **changes: bytes | str | None):
    """The members of a kernel wheel; `changes` replaces or (None) removes one, by its path."""
    info = f"{name.replace('-', '_')}-{version}.dist-info"
    library = LIBRARY.read_bytes()
    members: dict[str, bytes | str | None] = {
        "sgl_kernel/__init__.py": "",
        "sgl_kernel/sm90/common_ops.abi3.so": library,
        "sgl_kernel/sm100/common_ops.abi3.so": library,
        f"{info}/METADATA": f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n"
        "Requires-Dist: torch==2.14.1\n",
        f"{info}/WHEEL": "Wheel-Version: 1.0\nTag: cp310-abi3-manylinux2014_x86_64\n",
    }
    members.update({key.replace("INFO", info): value for key, value in changes.items()})
    kept = {
        key: value.encode() if isinstance(value, str) else value
        for key, value in members.items()
        if value is not None
    }
    lines = [f"{key},{_hash(value)},{len(value)}" for key, value in kept.items()]
    kept[f"{info}/RECORD"] = ("\n".join([*lines, f"{info}/RECORD,,"]) + "\n").encode()
    return kept


def wheel(folder: Path, members: dict[str, bytes]) -> Path:
    """A wheel file of these members."""
    info = next((key.split("/")[0] for key in members if ".dist-info/" in key), "empty-0.dist-info")
    path = folder / f"{info.removesuffix('.dist-info')}-cp310-abi3-manylinux2014_x86_64.whl"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for key, value in members.items():
            archive.writestr(key, value)
    return path


def install(site: Path, members: dict[str, bytes]) -> Path:
    """The members laid out as pip would."""
    for key, value in members.items():
        (site / key).parent.mkdir(parents=True, exist_ok=True)
        (site / key).write_bytes(value)
    return site


def venv(root: Path, torch: str | None = "2.14.1+cu130", cuda: str | None = "13.0") -> Path:
    """An environment with this Python and a torch that is only its version file and a folder of
    libraries; returns its site-packages."""
    (root / "bin").mkdir(parents=True)
    (root / "bin/python").symlink_to(sys.executable)
    home = Path(sys.executable).resolve().parent
    (root / "pyvenv.cfg").write_text(f"home = {home}\ninclude-system-site-packages = false\n")
    site = root / "lib/python{}.{}/site-packages".format(*sys.version_info[:2])
    site.mkdir(parents=True)
    if torch:
        (site / "torch/lib").mkdir(parents=True)
        text = f"__version__ = '{torch}'\ncuda: Optional[str] = {cuda!r}\n"
        (site / "torch/version.py").write_text(text)
        (site / "torch/lib/libc10.so").write_bytes(LIBRARY.read_bytes())
    return site


def _hash(data: bytes) -> str:
    digest = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
    return f"sha256={digest}"
