"""The ports that an engine binds beside its own, and engines of one host that want the same."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from roles.inventory.schema import Report
from sglangctl.util.values import whole

BESIDE = 233
"""From the port to the first of those that DP attention binds (SGLang's ZMQ_TCP_PORT_DELTA)."""
HANDSHAKE = 13
"""From the port to the one where DP attention tells other hosts of its ports, which it binds for one
host too (SGLang's DP_ATTENTION_HANDSHAKE_PORT_DELTA, managers/data_parallel_controller.py)."""
HIGHEST = 65535
NAMED = (
    *("disaggregation-bootstrap-port", "encoder-bootstrap-port", "engine-info-bootstrap-port"),
    *("grpc-http-sidecar-port", "grpc-port", "nccl-port"),
)
"""Flags whose value is a port that the engine binds."""


def derived(port: int, given: Mapping[str, Any]) -> dict[int, str]:
    """Port -> why the engine binds it beside `port`; `given`: its flags.

    With DP attention SGLang 0.5.23 binds a rendezvous, six ports for its processes, and a handshake.
    """
    found = {
        number: f"the flag {flag}"
        for flag in NAMED
        if (number := _port(given.get(flag))) is not None
    }
    size = given.get("attn-dp-size")
    on = given.get("enable-dp-attention") is True or (isinstance(size, int) and size > 1)
    if on and "dist-init-addr" not in given:
        first = port + BESIDE if port + BESIDE <= HIGHEST else port - BESIDE
        last = min(first + 7, HIGHEST + 1)
        taken = [*range(first, last), port + HANDSHAKE]
        found.update({number: "DP attention" for number in taken if number <= HIGHEST})
    return found


def check(engines: Mapping[str, Mapping[str, Any]], report: Report) -> None:
    """Each port of a host has one engine; a port that is wrong is not there."""
    own: dict[int, str] = {}
    for name, engine in sorted(engines.items()):
        other = own.setdefault(engine["port"], name) if "port" in engine else name
        if other != name:
            found = f"{engine['port']}, which engine {other} has, too"
            report(("engines", name, "port"), found, "a port of its own for each engine", None)
    beside: dict[int, str] = {}
    for name, engine in sorted(engines.items()):
        if "port" not in engine:
            continue
        for number, why in sorted(derived(engine["port"], engine["flags"]).items()):
            other = own.get(number) or beside.setdefault(number, name)
            same = other == name
            if same and number != engine["port"]:
                continue
            whose = "its own port" if same else f"a port of engine {other}, too"
            found = f"{engine['port']}: with it, {why} takes {number}, {whose}"
            report(("engines", name, "port"), found, "a port of its own for each use", None)
            break


def _port(value: Any) -> int | None:
    number = int(value) if isinstance(value, str) and value.isdecimal() else whole(value)
    return number if number is not None and 0 < number <= HIGHEST else None
