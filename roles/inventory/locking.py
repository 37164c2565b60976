"""The choice of every package of an environment, by uv on the controller: what locks/ENGINE.txt holds."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
from importlib.util import find_spec
from pathlib import Path

from roles.inventory import locked
from roles.inventory.model import Install
from sglangctl.packages import options as pip

PYTHONS = ("3.10", "3.11", "3.12", "3.13")
"""Tried in this order as the oldest one that the lock is for: SGLang 0.5.23 needs 3.11."""
RESOLVE_S = 600.0
BUILDING = re.compile(r"(?i)--no-build|building (?:source|from source)|no usable wheels")


class CannotLock(Exception):
    """Why an engine cannot be locked, in one sentence."""


def chosen(
    install: Install,
    preferred: Path | None = None,
    build: bool = False,
    limit_s: float = RESOLVE_S,
) -> str:
    """Every package with its hashes, for `locked.written`; CannotLock.

    + preferred: an older lock, whose versions stay where they can
    + build: packages' own code may run here, where the keys of the fleet are
    """
    lockable(install)
    return resolved(install, preferred, build, limit_s)


def lockable(install: Install) -> None:
    """CannotLock says why an environment cannot have a lock from here."""
    if install.system_site_packages:
        raise CannotLock(
            "install.system_site_packages takes packages of the host, which no lock has"
        )
    direct = [pin for pin in install.packages if " @ " in pin]
    if direct:
        raise CannotLock(f"{direct[0]} names an address, which has no hash: pin a version instead")
    options(install)
    if find_spec("uv") is None:
        raise CannotLock(f"uv is missing here: {sys.executable} -m pip install uv")


def keep(path: Path, install: Install, requirements: str, environment: str | None = None) -> None:
    """Write a lock in one move; CannotLock, OSError. `environment`: as locked.written has it."""
    try:
        content = locked.written(install.packages, requirements, environment)
    except locked.NoLock as error:
        raise CannotLock(f"uv's answer is no lock: {error}") from None
    path.parent.mkdir(parents=True, exist_ok=True)
    beside = path.with_name(f".{path.name}.new")
    beside.write_bytes(content)
    os.replace(beside, path)


def resolved(install: Install, preferred: Path | None, build: bool, limit_s: float) -> str:
    """The requirements that uv chooses, with hashes; CannotLock with uv's own last words."""
    named = re.search(r"3\.\d+", install.python.rpartition("/")[2])
    failure = ""
    with tempfile.TemporaryDirectory(prefix="sglang-lock-") as folder:
        wanted, out = Path(folder, "pins.in"), Path(folder, "lock.txt")
        wanted.write_text("\n".join(install.packages) + "\n", encoding="utf-8")
        for python in [named[0]] if named else PYTHONS:
            if preferred is not None:
                out.write_bytes(preferred.read_bytes())
            argv = [sys.executable, "-I", "-m", "uv", "pip", "compile", "--quiet", "--no-header"]
            argv += ["--no-annotate", "--universal", "--generate-hashes", "--no-progress"]
            # The newest release of all indexes, as pip has it; uv stops at the first index.
            argv += ["--index-strategy=unsafe-best-match"]
            # Else uv looks for a Python of that version, and downloads one, to run build scripts with.
            argv += ["--no-python-downloads"]
            argv += [] if build else ["--no-build", f"--python={sys.executable}"]
            argv += [f"--python-version={python}", f"--output-file={out}", *options(install)]
            try:
                done = subprocess.run(
                    [*argv, "--", str(wanted)],
                    capture_output=True,
                    text=True,
                    timeout=limit_s,
                )
            except subprocess.TimeoutExpired:
                raise CannotLock(f"uv did not answer within {limit_s:g} s") from None
            if done.returncode == 0:
                return out.read_text(encoding="utf-8")
            failure = " ".join(done.stderr.split())[-600:] or f"uv ended with {done.returncode}"
            if "Python" not in done.stderr:
                break  # an index that does not answer, a release that is not there
    if not build and BUILDING.search(failure):
        failure += " (sglang-lock --build runs its build scripts on this machine)"
    raise CannotLock(failure)


def options(install: Install) -> list[str]:
    """install.index, find_links and pip_arguments for uv; CannotLock for one whose effect on the choice
    is not known."""
    try:
        return pip.for_uv(install.arguments)[0]
    except pip.Unknown as argument:
        raise CannotLock(
            f"install.pip_arguments has {argument}, which a lock does not know"
        ) from None
