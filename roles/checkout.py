"""Running pyinfra on the checkout's own files from wherever a person stands."""

from __future__ import annotations

import os
from pathlib import Path

CHECKOUT = Path(__file__).resolve().parent.parent
INVENTORY_VARIABLE = "SGLANG_INVENTORY"
REPORTS_VARIABLE = "SGLANG_REPORTS"


def environment(**more: str) -> dict[str, str]:
    """This process's environment for a pyinfra that runs in CHECKOUT, and `more`.

    What is relative to the folder that we were called in stays so: the variables that name
    paths, and the file inventory/hosts.yml there, which comes before the checkout's own.
    """
    found = dict(os.environ)
    for name in (INVENTORY_VARIABLE, REPORTS_VARIABLE):
        if found.get(name):
            # ~ is left to those who read it: ~nobody is a mistake that they can tell.
            path = found[name]
            found[name] = path if path.startswith("~") else os.path.abspath(path)
    own = Path("inventory/hosts.yml").absolute()
    if not found.get(INVENTORY_VARIABLE) and own.exists():
        found[INVENTORY_VARIABLE] = str(own)
    return {**found, **more}
