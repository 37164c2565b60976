"""Running pyinfra on the checkout's own files from wherever a person stands."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from roles.report.report import FOLDER_VARIABLE

CHECKOUT = Path(__file__).resolve().parents[2]
INVENTORY_VARIABLE = "SGLANG_INVENTORY"


def environment(**more: str) -> dict[str, str]:
    """This process's environment for a pyinfra that runs in CHECKOUT, and `more`.

    What is relative to the folder that we were called in stays so: the variables that name
    paths, and the file inventory/hosts.yml there, which comes before the checkout's own.
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


def pyinfra(
    deploy: str, *arguments: str, env: Mapping[str, str], stdout: int | None = None
) -> subprocess.CompletedProcess[bytes]:
    """Run pyinfra with one of the checkout's deploys; it prints what it finds."""
    # Ctrl-C reaches pyinfra too, which ends in its own time and with its own words.
    before = signal.signal(signal.SIGINT, lambda number, frame: None)
    try:
        return subprocess.run(
            [sys.executable, "-m", "pyinfra", "inventory.py", f"deploys/{deploy}.py", *arguments],
            cwd=CHECKOUT,
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
