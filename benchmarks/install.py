"""How long an environment takes, by uv and by pip, from one lock; and what a second one takes.

python3 -m benchmarks.install [--engine] [--evidence]: as root, on a machine that reaches an index.
--engine: the whole of SGLang (220 packages, 8 GB); without it a small closure (see SMALL). Each way is
measured cold (nothing was ever downloaded) and warm (a second environment of the same lock); `next` is
the next release: the same packages but one.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import uv

from benchmarks import evidence
from roles.inventory import locking
from roles.inventory.model import Install
from sglangctl.packages import fill, uv_program
from sglangctl.packages.fill import Wanted
from sglangctl.state import build_user
from sglangctl.state.paths import Paths
from sglangctl.systemd import confined

ENGINE = ("sglang==0.5.23",)
SMALL = (
    "numpy==2.3.5",
    "pandas==2.3.3",
    "transformers==4.57.1",
    "aiohttp==3.13.2",
    "sympy==1.14.0",
)
CHANGED = "six==1.17.0", "six==1.16.0"
NEXT_S, NEXT_MB = 15.0, 50.0


def own_rights(argv: list[str], paths: Paths, *, limit_s: float, **_: Any) -> confined.Ended:
    home = {**os.environ, "HOME": str(paths.root / "var")}
    return confined.run(argv, None, limit_s=limit_s, environment=home, streamed=True)


def environment(paths: Paths, name: str) -> Path:
    venv = paths.venvs / name
    venv.parent.mkdir(parents=True, exist_ok=True)
    subprocess.run([sys.executable, "-I", "-m", "venv", str(venv)], check=True)
    return venv


def inodes(*folders: Path) -> Iterator[tuple[int, int]]:
    for folder in folders:
        for place, _, files in os.walk(folder):
            for name in files:
                status = os.lstat(os.path.join(place, name))
                yield status.st_ino, status.st_blocks * 512


def measured(paths: Paths, name: str, lock: Path, by_uv: bool) -> dict[str, float]:
    """Seconds to fill it, and megabytes that the disk has less afterwards, the download caches too."""
    venv = environment(paths, name)
    places = (paths.venvs, paths.packages, paths.root / "var")
    before = dict(inodes(*places))
    wanted = Wanted(venv, lock)
    began = time.perf_counter()
    status = fill.by_uv(wanted, lock, paths) if by_uv else fill.by_pip(wanted, paths)
    took = time.perf_counter() - began
    assert status == 0, status
    new = {inode: size for inode, size in inodes(*places) if inode not in before}
    return {"s": round(took, 1), "mb": round(sum(new.values()) / 1e6, 1)}


def measure(root: Path, pins: tuple[str, ...], by_uv: bool) -> dict[str, Any]:
    """Cold, warm, and the next release, on a host of its own."""
    root.mkdir(mode=0o755)
    paths = Paths(root)
    if by_uv:
        program = paths.tools / f"uv-{uv_program.VERSION}/uv"
        program.parent.mkdir(parents=True)
        shutil.copy(uv.find_uv_bin(), program)
    locks = []
    for changed in CHANGED:
        file = root / f"{changed}.txt"
        file.write_text(locking.chosen(Install("python3", (*pins, changed))), encoding="utf-8")
        locks.append(file)
    found: dict[str, Any] = {}
    for name, lock in (("cold", locks[0]), ("warm", locks[0]), ("next", locks[1])):
        found[name] = measured(paths, name, lock, by_uv)
        print(f"{'uv' if by_uv else 'pip'} {name}: {found[name]}", file=sys.stderr, flush=True)
    return found


def main(arguments: list[str]) -> int:
    wanted = evidence.asked(arguments)
    engine = "--engine" in arguments
    pins = ENGINE if engine else SMALL
    build_user.run = own_rights  # no user is made on this machine
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        folder.chmod(0o755)
        by_pip = measure(folder / "pip", pins, False)
        by_uv = measure(folder / "uv", pins, True)
        figures = {
            "closure": list(pins),
            "pip": by_pip,
            "uv": by_uv,
            "uv_version": uv_program.VERSION,
            "pip_over_uv": {
                one: round(by_pip[one]["s"] / by_uv[one]["s"], 1)
                for one in ("cold", "warm", "next")
            },
            "limits": {"next_s": NEXT_S, "next_mb": NEXT_MB},
        }
        evidence.keep("install-engine" if engine else "install", figures, wanted)
    good = by_uv["next"]["s"] < NEXT_S and by_uv["next"]["mb"] < NEXT_MB
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
