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
import sys
from collections.abc import Sequence
from pathlib import Path

from roles.entry.project import inventory_path
from roles.inventory import locked
from roles.inventory.errors import InventoryError
from roles.inventory.load import load_inventory
from roles.inventory.locking import CannotLock, chosen, keep
from roles.inventory.model import Install, Inventory


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
    pins, old = locked.found_in(path)
    if pins == list(install.packages) and not upgrade:
        own = locked.environment_of(path.read_bytes()) is not None
        more = (
            " (a deploy chose them; --upgrade chooses for every host, and restarts)" if own else ""
        )
        return f"{path}: {len(old)} packages, as before{more}"
    keep(path, install, chosen(install, path if old and not upgrade else None, build))
    _, new = locked.found_in(path)
    return "\n".join([f"{path}: {len(new)} packages", *(f"  {line}" for line in changed(old, new))])


def changed(old: Sequence[str], new: Sequence[str]) -> list[str]:
    """`torch 2.14.0 -> 2.14.1` for each package whose version changed."""
    found = locked.differences(old, new) if old else []
    return [f"{name} {was or '-'} -> {now or '-'}" for name, was, now in found]
