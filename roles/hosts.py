"""What inventory.py gives to pyinfra: hosts with their data, or one sentence and an end."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from roles import connecting
from roles.inventory.entry import host_data, inventory_path, pyinfra_name
from roles.inventory.errors import InventoryError
from roles.inventory.load import load_inventory


def pyinfra_hosts(path: str | Path | None = None) -> list[tuple[str, dict[str, Any]]]:
    """pyinfra's list of (name, data); ends the program when there is no usable file.

    A host with mistakes is in the list, and is not connected to: the run fails for it alone.

    + path: the inventory; None for the one of SGLANG_INVENTORY, else inventory/hosts.yml
    """
    given = connecting.called_with("ssh_key") or connecting.called_with("ssh_key_password")
    try:
        inventory = load_inventory(path or inventory_path(), key_is_given=bool(given))
    except InventoryError as error:
        raise SystemExit(f"sglang-provision: {error}") from None
    for line in inventory.errors:
        print(f"sglang-provision: no host uses this, and it is wrong: {line}", file=sys.stderr)
    connecting.guard()
    return [(pyinfra_name(entry), host_data(entry)) for entry in inventory.hosts]
