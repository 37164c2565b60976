"""Runs pyinfra on a project, from any folder.

The project is the folder that one stands in where it has an inventory.py and the deploy (as
sglang-init writes them, and as a checkout has them), else the checkout or the installed package.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from roles.inventory.errors import InventoryError, shown
from roles.inventory.reading import UnreadableFile, expanded
from roles.inventory.shipped import EXAMPLES, INSTALLED, SHIPPED
from roles.report.report import FOLDER_VARIABLE

INVENTORY_VARIABLE = "SGLANG_INVENTORY"


def environment(**more: str) -> dict[str, str]:
    """This process's environment for a pyinfra that runs in `folder_of`, and `more`.

    What is relative to the folder that we were called in stays so: the variables that name
    paths, and the file inventory/hosts.yml there, which comes before the project's own.
    """
    found = dict(os.environ)
    for name in (INVENTORY_VARIABLE, FOLDER_VARIABLE):
        if found.get(name):
            # ~ is left to those who read it: ~nobody is a mistake that they can tell.
            path = found[name]
            found[name] = path if path.startswith("~") else os.path.abspath(path)
    own = Path("inventory/hosts.yml").absolute()
    if not found.get(INVENTORY_VARIABLE) and own.exists():
        found[INVENTORY_VARIABLE] = str(own)
    return {**found, **more}


def inventory_path() -> Path:
    """The inventory that is to be used; InventoryError says which example to copy."""
    named = os.environ.get(INVENTORY_VARIABLE)
    if named:
        try:
            return expanded(named)
        except UnreadableFile as error:
            raise InventoryError(f"{INVENTORY_VARIABLE}={shown(named)} {error}") from None
    path = Path("inventory/hosts.yml")
    if path.exists():
        return path
    # A project of its own never means the hosts of the checkout whose package it uses.
    own = Path("inventory.py").exists() and Path.cwd() != SHIPPED
    if not own and (SHIPPED / path).exists():
        return SHIPPED / path
    # The console scripts run in SHIPPED where a person stands in no project.
    if INSTALLED and (Path.cwd() == SHIPPED or not (path.parent / EXAMPLES[0]).exists()):
        raise InventoryError(
            "there is no inventory/hosts.yml in this folder: write a folder with examples with "
            "`sglang-init FOLDER`, and run this there"
        )
    raise InventoryError(
        "there is no inventory/hosts.yml yet: copy an example there and change it\n"
        f"  cp inventory/{EXAMPLES[0]} inventory/hosts.yml    (one engine on one host)\n"
        f"  cp inventory/{EXAMPLES[1]} inventory/hosts.yml    (eight GPUs, drafter, takes over "
        "from vLLM)\n"
        "or name another file: SGLANG_INVENTORY=FILE pyinfra inventory.py ..."
    )


def folder_of(deploy: str) -> Path:
    """The folder of the project whose deploy this is."""
    here = Path.cwd()
    own = all((here / one).exists() for one in ("inventory.py", f"deploys/{deploy}.py"))
    return here if own else SHIPPED


def pyinfra(
    deploy: str, *arguments: str, env: Mapping[str, str], stdout: int | None = None
) -> subprocess.CompletedProcess[bytes]:
    """Run pyinfra with one of the project's deploys; it prints what it finds."""
    # Ctrl-C reaches pyinfra too, which ends in its own time and with its own words.
    before = signal.signal(signal.SIGINT, lambda number, frame: None)
    try:
        return subprocess.run(
            [sys.executable, "-m", "pyinfra", "inventory.py", f"deploys/{deploy}.py", *arguments],
            cwd=folder_of(deploy),
            stdin=subprocess.DEVNULL,
            stdout=stdout,
            env=env,
        )
    finally:
        signal.signal(signal.SIGINT, before)


def asks_for_yes(arguments: Sequence[str]) -> bool:
    """Whether pyinfra's options have -y in them, also behind others (-vy)."""
    return any(
        one == "--yes" or (re.fullmatch(r"-[a-z]+", one) is not None and "y" in one)
        for one in arguments
    )
