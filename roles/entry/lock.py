"""sglang-lock [--upgrade] [--build] [INVENTORY] [ENGINE ...]: choose every package of an engine's environment, once.

Writes locks/ENGINE.txt beside the inventory (SGLANG_INVENTORY, inventory/hosts.yml): all packages with
their versions and hashes, for every Python and every Linux. Keep it in version control. A deploy
installs exactly that. A lock that fits its pins stays; --upgrade chooses anew.

No code of a package runs here: only wheels are chosen. --build also takes packages that have none, whose
build scripts then run on this machine, with your rights.

Exit status: 0 all are locked, 1 one cannot be.
"""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path

from roles.entry.project import inventory_path
from roles.inventory import locked
from roles.inventory.errors import InventoryError
from roles.inventory.load import load_inventory
from roles.inventory.model import Install, Inventory

PYTHONS = ("3.10", "3.11", "3.12", "3.13")
"""Tried in this order as the oldest one that the lock is for: SGLang 0.5.23 needs 3.11."""
RESOLVE_S = 600.0
SOURCES = ("-i", "--index-url", "--extra-index-url", "-f", "--find-links")
"""Options of pip that name where packages come from: uv has the same ones."""
ALONE = {"--no-index": "--no-index", "--pre": "--prerelease=allow"}
HARMLESS = re.compile(
    r"--(?:no-cache-dir|no-compile|timeout|retries|proxy|trusted-host|cert|quiet)\b"
)
"""They do not decide what is chosen."""
BUILDING = re.compile(r"(?i)--no-build|building (?:source|from source)|no usable wheels")
VALUED = ("--timeout", "--retries", "--proxy", "--trusted-host", "--cert")


class CannotLock(Exception):
    """Why an engine cannot be locked, in one sentence."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Lock what is named, all engines by default; returns the exit status."""
    parser = argparse.ArgumentParser(
        prog="sglang-lock",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--upgrade", action="store_true", help="choose anew where a lock fits")
    parser.add_argument("--build", action="store_true", help="packages without a wheel, too")
    parser.add_argument("names", nargs="*", metavar="INVENTORY or ENGINE")
    asked = parser.parse_args(arguments)
    names = list(asked.names)
    files = [name for name in names if name.endswith((".yml", ".yaml"))]
    try:
        file = Path(files[0]).expanduser() if files else inventory_path()
        wanted = installs(load_inventory(file))
        unknown = [name for name in names if name not in files and name not in wanted]
        if unknown or len(files) > 1:
            name = (unknown or files[1:])[0]
            raise CannotLock(f"no engine of {file} is called {name}; it has: {', '.join(wanted)}")
    except (InventoryError, CannotLock) as error:
        print(f"sglang-lock: {error}", file=sys.stderr)
        return 1
    status = 0
    for name, install in wanted.items():
        if len(names) > len(files) and name not in names:
            continue
        try:
            print(one(name, install, file.parent, asked.upgrade, asked.build), flush=True)
        except (CannotLock, OSError) as error:
            print(f"sglang-lock: {name}: {error}", file=sys.stderr)
            status = 1
    return status


def installs(inventory: Inventory) -> dict[str, Install]:
    """What each engine installs. CannotLock where two hosts want another thing under one name."""
    found: dict[str, Install] = {}
    of: dict[str, str] = {}
    for entry in inventory.hosts:
        for engine in entry.spec.engines if entry.spec else ():
            first = found.setdefault(engine.name, engine.install)
            host = of.setdefault(engine.name, entry.name)
            if first.packages != engine.install.packages:
                raise CannotLock(
                    f"{host} and {entry.name} pin other packages for {engine.name}: give one of "
                    f"them another name, with `base: {engine.name}`"
                )
    if not found:
        raise CannotLock("no host of the inventory can be read: sglang-plan says why")
    return found


def one(name: str, install: Install, folder: Path, upgrade: bool, build: bool) -> str:
    """Lock one engine; a sentence about it."""
    path = locked.path_of(name, folder)
    try:
        pins, old = locked.parse(path.read_bytes())
    except (FileNotFoundError, locked.NoLock):
        pins, old = [], []
    if pins == list(install.packages) and not upgrade:
        return f"{path}: {len(old)} packages, as before"
    if install.system_site_packages:
        raise CannotLock(
            "install.system_site_packages takes packages of the host: no lock has them"
        )
    direct = [pin for pin in install.packages if " @ " in pin]
    if direct:
        raise CannotLock(f"{direct[0]} names an address, which has no hash: pin a version instead")
    if find_spec("uv") is None:
        raise CannotLock(f"uv is missing here: {sys.executable} -m pip install uv")
    text = resolved(install, path if old and not upgrade else None, build)
    try:
        content = locked.written(install.packages, text)
    except locked.NoLock as error:
        raise CannotLock(f"uv's answer is no lock: {error}") from None
    path.parent.mkdir(parents=True, exist_ok=True)
    beside = path.with_name(f".{path.name}.new")
    beside.write_bytes(content)
    os.replace(beside, path)
    _, new = locked.parse(content)
    return "\n".join([f"{path}: {len(new)} packages", *(f"  {line}" for line in changed(old, new))])


def changed(old: Sequence[str], new: Sequence[str]) -> list[str]:
    """`torch 2.14.0 -> 2.14.1` for each package whose version changed."""
    before, after = versions(old), versions(new)
    if not before:
        return []
    names = [name for name in sorted({*before, *after}) if before.get(name) != after.get(name)]
    return [f"{name} {before.get(name, '-')} -> {after.get(name, '-')}" for name in names]


def versions(packages: Sequence[str]) -> dict[str, str]:
    """Name -> its versions (one for each marker)."""
    found: dict[str, list[str]] = {}
    for package in packages:
        name, _, rest = package.partition("==")
        found.setdefault(name, []).append(rest.partition(" ;")[0])
    return {name: ", ".join(sorted(several)) for name, several in found.items()}


def resolved(install: Install, preferred: Path | None, build: bool) -> str:
    """The requirements that uv chooses, with hashes. `preferred`: an older lock, whose versions stay
    where they can. `build`: packages' own code may run here, where the keys of the fleet are.
    CannotLock with uv's own last words."""
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
            # Else uv looks for a Python of that version, and downloads one, to run build scripts with.
            argv += ["--no-python-downloads"]
            argv += [] if build else ["--no-build", f"--python={sys.executable}"]
            argv += [f"--python-version={python}", f"--output-file={out}", *options(install)]
            try:
                done = subprocess.run(
                    [*argv, "--", str(wanted)],
                    capture_output=True,
                    text=True,
                    timeout=RESOLVE_S,
                )
            except subprocess.TimeoutExpired:
                raise CannotLock(f"uv did not answer within {RESOLVE_S:g} s") from None
            if done.returncode == 0:
                return out.read_text(encoding="utf-8")
            failure = " ".join(done.stderr.split())[-600:] or f"uv ended with {done.returncode}"
    if not build and BUILDING.search(failure):
        failure += " (sglang-lock --build runs its build scripts on this machine)"
    raise CannotLock(failure)


def options(install: Install) -> list[str]:
    """install.pip_arguments for uv; CannotLock for one whose effect on the choice is not known."""
    found: list[str] = []
    given = iter(install.pip_arguments)
    for argument in given:
        name, equals, _ = argument.partition("=")
        if name in SOURCES:
            found += [argument] if equals else [argument, next(given, "")]
        elif argument in ALONE:
            found.append(ALONE[argument])
        elif HARMLESS.match(argument):
            if name in VALUED and not equals:
                next(given, None)
        else:
            raise CannotLock(f"install.pip_arguments has {argument}, which a lock does not know")
    return found
