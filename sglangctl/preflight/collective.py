"""What `sglangctl collective` found out on these GPUs, if it ever ran: one small file is read."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from sglangctl.diagnosis.finding import INFO, WARN, Finding
from sglangctl.preflight.catalog import finding
from sglangctl.state import collectives
from sglangctl.state.config import EngineConfig
from sglangctl.state.paths import Paths
from sglangctl.util.values import mapping, mappings, text

BAD = ("wrong", "hung")
SAFE = "nccl.profile safe (or auto)"
ALREADY = "dmesg -T | grep -i -e xid -e nvrm may say why (it is without peer-to-peer already)"


def look(engine: EngineConfig, facts: Mapping[str, Any], paths: Paths) -> Iterator[Finding]:
    """Nothing for one rank, and where nothing is kept."""
    entry = collectives.newest(engine.name, paths) if engine.tensor_parallel > 1 else None
    if entry is not None:
        yield from judge(engine, entry, mappings(facts.get("gpus")))


def judge(
    engine: EngineConfig, entry: Mapping[str, Any], known: list[dict[str, Any]]
) -> Iterator[Finding]:
    """Pure. Of the arms the one that treats peer-to-peer as the engine does, which may have got
    another profile since. `known`: the host's GPUs."""
    wanted = engine.preflight.peer_to_peer
    arms = mappings(entry.get("arms"))
    copies = (collectives.peer_to_peer(mapping(one.get("environment"))) for one in arms)
    arm = next((one for one, copied in zip(arms, copies) if copied == wanted), None)
    if arm is None:
        return
    seen = f"the all-reduces of these GPUs: {collectives.summary(entry, arm)}"
    key = mapping(entry.get("key"))
    uuids = [text(one.get("uuid")) for one in mappings(mapping(key.get("topology")).get("gpus"))]
    now = {text(gpu.get("uuid")): text(gpu.get("driver")) for gpu in known}
    if any(uuid not in now for uuid in uuids) or any(
        now[uuid] != text(key.get("driver")) for uuid in uuids
    ):
        seen += "; since then the driver or a GPU is another one"
    bad = arm.get("outcome") in BAD
    first = SAFE if wanted else ALREADY
    fix = f"{first}; prove it again: sglangctl collective {engine.name}, while it is down"
    yield finding("collective", WARN if bad else INFO, seen, fix if bad else "")
