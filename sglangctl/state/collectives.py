"""Results of `sglangctl collective` that are kept: collective.json in the engine's folder.

One entry for each driver, NCCL version and topology, the newest last.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from sglangctl.state.files import write_atomic
from sglangctl.state.paths import Paths
from sglangctl.util.plain_files import read_bytes
from sglangctl.util.values import json_object, mapping, mappings, text

VERSION = 1
KEPT = 8


def peer_to_peer(environment: Mapping[str, Any]) -> bool:
    """Whether NCCL may copy from GPU to GPU with these variables."""
    return environment.get("NCCL_P2P_DISABLE") != "1"


def entries(name: str, paths: Paths) -> list[dict[str, Any]]:
    """What is kept of an engine, oldest first; what is no file that can be parsed counts as none, also
    a folder. PermissionError passes through."""
    try:
        document = json_object(read_bytes(paths.collective(name)))
    except PermissionError:
        raise
    except OSError:
        return []
    return mappings(document.get("collective")) if document.get("v") == VERSION else []


def newest(name: str, paths: Paths) -> dict[str, Any] | None:
    """The last one that was kept; None where there is none."""
    return next(reversed(entries(name, paths)), None)


def store(name: str, entry: Mapping[str, Any], paths: Paths) -> None:
    """Keep a result in the place of the one with the same key."""
    key = mapping(entry.get("key"))
    others = [one for one in entries(name, paths) if one.get("key") != key]
    file = paths.collective(name)
    file.parent.mkdir(parents=True, exist_ok=True)
    data = json.dumps({"v": VERSION, "collective": [*others, entry][-KEPT:]}).encode()
    write_atomic(file, data + b"\n", 0o644)


def summary(entry: Mapping[str, Any], arm: Mapping[str, Any] | None = None) -> str:
    """One line about a result, of its first arm or of `arm`."""
    told = arm if arm is not None else (mappings(entry.get("arms")) or [{}])[0]
    key = mapping(entry.get("key"))
    words = [f"{what} {key[what]}" for what in ("driver", "nccl") if text(key.get(what))]
    where = f" ({', '.join(words)})" if words else ""
    return f"{told.get('outcome')} on {text(entry.get('time'))}{where}: {told.get('sentence')}"


def differences(
    entry: Mapping[str, Any], driver: str | None, nccl: str | None, topology: Any
) -> list[str]:
    """What is not as it was when the result was kept, in words. `nccl`: of the engine's environment
    now, as its package has it (`2.28.9.post1`); None: it does not say."""
    key = mapping(entry.get("key"))
    found = []
    if key.get("driver") != driver:
        found.append(f"driver {key.get('driver')}, now {driver or 'unknown'}")
    version = text(key.get("nccl"))
    if version and nccl and not f"{nccl}.".startswith(f"{version}."):
        found.append(f"NCCL {version}, now {nccl}")
    then, now = mapping(key.get("topology")), mapping(topology)
    if [one.get("uuid") for one in mappings(then.get("gpus"))] != [
        one.get("uuid") for one in mappings(now.get("gpus"))
    ]:
        found.append("other GPUs")
    elif then != now:
        found.append("another PCIe topology")
    return found
