"""The inventory: read, merged, validated, and rendered to what lands on a host. No pyinfra."""

from roles.inventory.errors import InventoryError
from roles.inventory.load import load_inventory
from roles.inventory.model import EngineSpec, HostEntry, HostSpec, Inventory
from roles.inventory.secret import Secret

__all__ = [
    "EngineSpec",
    "HostEntry",
    "HostSpec",
    "Inventory",
    "InventoryError",
    "Secret",
    "load_inventory",
]
