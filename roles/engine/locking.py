"""The lock of an environment that has none yet: a deploy makes it with the environment, and keeps it.

It is made on the controller: what a host says is not installed on others. It changes no digest, so
nothing is restarted by it: see roles/inventory/locked.py.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from gevent.lock import RLock
from pyinfra.api import Host

from roles.inventory import locked, locking
from roles.inventory.locking import CannotLock
from roles.inventory.model import Install
from roles.remote.failing import say
from roles.remote.snapshot import JSON
from sglangctl.util.values import texts

CHOOSE_S = 180.0
"""For uv's choice: SGLang 0.5.23 takes it seconds, and a controller may reach no index."""
# One choice for the whole run: hosts that make the same environment at once get the same one.
MAKING: dict[Path, RLock] = {}
# Nor is one that failed tried again for the next host, which would wait CHOOSE_S as well.
FAILED: dict[tuple[Path, str], str] = {}


def why_none(install: Install, facts: JSON) -> str | None:
    """Why a deploy makes no lock with the environment that it makes; None: it does, or there is one.
    Pure."""
    if install.locked is not None:
        return None
    if install.lock_file is None:
        return "it has no folder"
    own = texts(facts.get("pip_sources"))
    if own:
        # What is best there is not what is best here: a host with CUDA 12 has its torch from there.
        return (
            f"pip on this host has settings of its own ({', '.join(own)}); to lock, name them in the "
            "inventory's install and call sglang-lock"
        )
    try:
        locking.lockable(install)
    except CannotLock as error:
        return str(error)
    return None


def with_lock(host: Host, install: Install, environment: str) -> Install:
    """With the lock of this environment, made where there is none; without, where none can be made.

    + environment: its digest without a lock
    """
    path = install.lock_file
    if install.locked is not None or path is None:
        return install
    with MAKING.setdefault(path, RLock()):
        found = kept(install, path, environment)
        try:
            if found is None:
                if failed := FAILED.get((path, environment)):
                    raise CannotLock(failed)
                say(host, f"choosing the packages of {path.stem} with uv, on the controller ...")
                older = path if path.exists() else None
                chosen = locking.chosen(install, older, limit_s=CHOOSE_S)
                locking.keep(path, install, chosen, environment)
                found = kept(install, path, environment)
        except (CannotLock, OSError) as error:
            FAILED[path, environment] = str(error)
            say(host, f"no lock is kept, so pip chooses the packages: {error}", fg="yellow")
            return install
    if found is not None:
        many = f"{len(found.packages)} packages"
        say(host, f"{many} are locked in {path}: keep it in version control")
    return replace(install, locked=found)


def kept(install: Install, path: Path, environment: str) -> locked.Locked | None:
    """The lock of this very environment, where it is there."""
    try:
        content = path.read_bytes()
        pins, packages = locked.parse(content)
    except (OSError, locked.NoLock):
        return None
    if pins != list(install.packages) or locked.environment_of(content) != environment:
        return None
    return locked.Locked(tuple(packages), content, environment)
