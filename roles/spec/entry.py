"""What inventory.py gives to pyinfra: hosts with their data, or one sentence and an end."""

from __future__ import annotations

import os
import re
import sys
from pathlib import Path
from typing import Any

from roles.spec.errors import InventoryError, shown
from roles.spec.load import load_inventory
from roles.spec.model import HostEntry
from roles.spec.reading import UnreadableFile, expanded

ROOT = Path(__file__).resolve().parents[2]
EXAMPLES = ("minimal.example.yml", "kimi-8x-rtx-pro-6000.example.yml")


def inventory_path() -> Path:
    """The inventory that is to be used; InventoryError says which example to copy."""
    named = os.environ.get("SGLANG_INVENTORY")
    if named:
        try:
            return expanded(named)
        except UnreadableFile as error:
            raise InventoryError(f"SGLANG_INVENTORY={shown(named)} {error}") from None
    path = Path("inventory/hosts.yml")
    if path.exists():
        return path
    if (ROOT / path).exists():
        return ROOT / path
    raise InventoryError(
        "there is no inventory/hosts.yml yet: copy an example there and change it\n"
        f"  cp inventory/{EXAMPLES[0]} inventory/hosts.yml    (one engine on one host)\n"
        f"  cp inventory/{EXAMPLES[1]} inventory/hosts.yml    (eight GPUs, drafter, takes over "
        "from vLLM)\n"
        "or name another file: SGLANG_INVENTORY=FILE pyinfra inventory.py ..."
    )


def pyinfra_hosts() -> list[tuple[str, dict[str, Any]]]:
    """pyinfra's list of (name, data); ends the program when there is no usable file."""
    try:
        inventory = load_inventory(inventory_path())
    except InventoryError as error:
        raise SystemExit(f"sglang-provision: {error}") from None
    for line in inventory.errors:
        print(f"sglang-provision: no host uses this, and it is wrong: {line}", file=sys.stderr)
    return [(pyinfra_name(entry), host_data(entry)) for entry in inventory.hosts]


def host_data(entry: HostEntry) -> dict[str, Any]:
    """pyinfra's data of a host, with ours."""
    return {**entry.data, "sglang_host": entry.spec, "sglang_errors": list(entry.errors)}


def pyinfra_name(entry: HostEntry) -> str:
    """The name under which pyinfra connects.

    pyinfra ends the whole run on a name of a connector that it does not know, so a name that
    cannot be right becomes one that nobody can have (RFC 2606): that host alone fails, and
    its mistakes are printed here because no deploy will get to it.
    """
    if entry.spec is not None or not any("the host name" in line for line in entry.errors):
        return entry.name
    for line in entry.errors:
        print(f"sglang-provision: {line}", file=sys.stderr)
    return re.sub(r"[^A-Za-z0-9.-]+", "-", entry.name).strip("-.")[:60] + ".invalid"
