"""The inventory: read, merged, validated, and rendered to what lands on a host. No pyinfra."""

from roles.spec.errors import InventoryError
from roles.spec.load import load_inventory
from roles.spec.model import EngineSpec, HostEntry, HostSpec, Inventory
from roles.spec.secret import Secret

__all__ = [
    "EngineSpec",
    "HostEntry",
    "HostSpec",
    "Inventory",
    "InventoryError",
    "Secret",
    "load_inventory",
]
