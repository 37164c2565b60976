"""What inventory.py gives to pyinfra: hosts with their data, or one sentence and an end."""

from __future__ import annotations

import hashlib
import re
import sys
from pathlib import Path
from typing import Any

from roles.entry import connecting
from roles.entry.project import inventory_path
from roles.inventory.errors import InventoryError
from roles.inventory.load import load_inventory
from roles.inventory.model import HostEntry
from roles.monitoring.targets import monitoring_of
from roles.remote import asking, limits


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
    for line in dict.fromkeys(line for entry in inventory.hosts for line in entry.warnings):
        print(f"sglang-provision: warning: {line}", file=sys.stderr)
    connecting.guard()
    limits.guard()
    asking.guard()
    # One after the other (--serial), it is the first too.
    entries = sorted(inventory.hosts, key=lambda entry: entry.name != inventory.first)
    names = {entry.name: pyinfra_name(entry) for entry in entries}
    first = names.get(inventory.first or "")
    fleet = {"sglang_first": first, "sglang_monitoring": monitoring_of(inventory)}
    return [(names[one.name], {**host_data(one), **fleet}) for one in entries]


def host_data(entry: HostEntry) -> dict[str, Any]:
    """pyinfra's data of a host, with ours."""
    return {
        **entry.data,
        "sglang_name": entry.name,
        "sglang_host": entry.spec,
        "sglang_engines": list(entry.engines),
        "sglang_mistakes": list(entry.mistakes),
    }


def pyinfra_name(entry: HostEntry) -> str:
    """The name under which pyinfra has the host.

    pyinfra ends the whole run on a name of a connector that it does not know, so a name that
    cannot be right becomes one that nobody can have (RFC 2606).
    """
    if not any("the host name" in mistake.text for mistake in entry.mistakes):
        return entry.name
    plain = re.sub(r"[^A-Za-z0-9.-]+", "-", entry.name).strip("-.")[:60]
    # Two such names must not become one.
    digest = hashlib.sha256(entry.name.encode("utf-8", "surrogatepass")).hexdigest()[:4]
    return f"{plain}-{digest}.invalid" if plain else f"{digest}.invalid"
