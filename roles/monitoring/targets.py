"""What the inventory's Prometheus asks: addresses of engines and hosts, as seen from its host. Pure."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from typing import Any

from roles.inventory.model import EngineSpec, HostEntry, Inventory

NODE_PORT = 9100
"""Of Debian's node_exporter."""
ANY = ("0.0.0.0", "::")
LOOPBACK = ("127.", "localhost", "::1")


@dataclass(frozen=True)
class Target:
    """One address with the labels that its series get."""

    address: str
    host: str
    engine: str | None = None


@dataclass(frozen=True)
class Monitoring:
    """What the fleet's Prometheus is told."""

    prometheus: str
    """The host's name in the inventory."""
    engines: tuple[Target, ...]
    nodes: tuple[Target, ...]
    unseen: tuple[str, ...]
    """What cannot be asked from there, a sentence each."""
    unknown: tuple[str, ...]
    """Hosts with a mistake in the inventory: their engines are not known."""

    def to_json(self) -> Any:
        """For `pyinfra inventory.py debug-inventory`."""
        return asdict(self)


def monitoring_of(inventory: Inventory) -> Monitoring | None:
    """What follows from `monitoring` in the inventory; None without it."""
    if inventory.prometheus is None:
        return None
    engines: list[Target] = []
    nodes: list[Target] = []
    unseen: list[str] = []
    for entry in inventory.hosts:
        here = entry.name == inventory.prometheus
        address = "127.0.0.1" if here else address_of(entry)
        if address is None:
            unseen.append(f"{entry.name} has no address that {inventory.prometheus} could ask")
            continue
        nodes.append(Target(with_port(address, NODE_PORT), entry.name))
        for engine in entry.spec.engines if entry.spec else ():
            found = target_of(engine, entry.name, address, here)
            if isinstance(found, Target):
                engines.append(found)
            else:
                unseen.append(f"{engine.name} on {entry.name} {found}")
    unknown = tuple(entry.name for entry in inventory.hosts if entry.spec is None)
    return Monitoring(inventory.prometheus, tuple(engines), tuple(nodes), tuple(unseen), unknown)


def target_of(engine: EngineSpec, host: str, address: str, here: bool) -> Target | str:
    """Where an engine's /metrics is asked, or why it cannot be."""
    if engine.flags.get("enable-metrics") is not True:
        return "has no /metrics (flags.enable-metrics)"
    loopback = engine.listen.startswith(LOOPBACK)
    if loopback and not here:
        return f"listens on {engine.listen} only: set `listen`, or its own metrics are missing"
    own = "::1" if engine.listen == "::" and here else address
    found = own if engine.listen in ANY else engine.listen
    return Target(with_port(found, engine.port), host, engine.name)


def address_of(entry: HostEntry) -> str | None:
    """A host's address for other hosts; None where it has none (a container)."""
    connector, _, argument = entry.name.removeprefix("@").partition("/")
    given = entry.data.get("ssh_hostname")
    if isinstance(given, str):
        return given
    if not entry.name.startswith("@"):
        return entry.name
    return argument if connector == "ssh" else None


def with_port(address: str, port: int) -> str:
    return f"[{address}]:{port}" if ":" in address else f"{address}:{port}"


def file_sd(targets: Iterable[Target]) -> bytes:
    """As Prometheus' file_sd_configs reads them."""

    def labels(target: Target) -> Mapping[str, str]:
        engine = {} if target.engine is None else {"engine": target.engine}
        return {"host": target.host, **engine}

    groups = [{"targets": [one.address], "labels": labels(one)} for one in targets]
    return (json.dumps(groups, indent=2) + "\n").encode()
