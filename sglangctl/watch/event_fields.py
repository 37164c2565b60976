"""What the watch found, as the fields of journal events. Unknown is left out, never invented."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from sglangctl.engine import port_owner
from sglangctl.engine.http import Answer
from sglangctl.engine.port_owner import Owner
from sglangctl.engine.readiness_facts import Proof
from sglangctl.gpu import gpus
from sglangctl.proc import freezer, oom

SHM_FULL_MIB = 16


def http(answer: Answer) -> dict[str, Any]:
    """Of an `http` event."""
    return {
        "path": answer.path,
        "status": answer.status,
        "error": answer.error,
        "seconds": round(answer.seconds, 3),
    }


def models(proof: Proof) -> dict[str, Any] | None:
    """Of the `http` event of a proof's /v1/models."""
    if proof.models is None:
        return None
    fields = http(proof.models)
    if proof.facts.served_models is not None:
        fields["models"] = list(proof.facts.served_models)
    return fields


def generate(proof: Proof, drafter: bool) -> dict[str, Any] | None:
    """Of a `generate` event; None when nothing was generated."""
    if proof.generation is None:
        return None
    fields = {**proof.generation.event(), "asked": proof.asked, "model_kind": proof.model_kind}
    if proof.walks is not None:
        fields["warm"] = proof.walks.event()
    if proof.load is not None:
        fields["acceptance"] = proof.load
    if drafter and proof.min_accept_length is not None:
        fields["min_accept_length"] = proof.min_accept_length
    if drafter and proof.acceptance is not None:
        length = proof.acceptance.length
        fields["accept_length"] = None if length is None else round(length, 3)
        fields["accept_source"] = proof.acceptance.source
    if drafter and proof.facts.speculative is not None:
        fields["speculative"] = proof.facts.speculative
        fields["speculative_faults"] = list(proof.facts.speculative_faults)
    return fields


def socket(port: int, owner: Owner | None) -> dict[str, Any]:
    """Of a `socket` event; owner_pid null: nobody listens."""
    if owner is None:
        return {"port": port, "owner_pid": None}
    fields: dict[str, Any] = {"port": port}
    if owner.pid is not None:
        fields["owner_pid"] = owner.pid
    if owner.ours is not None:
        fields["ours"] = owner.ours
    if owner.ours is False and owner.pid is not None:
        named = port_owner.named(owner.pid)
        if named is not None:
            fields["owner"] = named
    return fields


def gpu(found: Iterable[gpus.Gpu], chosen: str | tuple[int, ...], ours: set[int]) -> dict[str, Any]:
    """Of a `gpu` event: the GPUs that the engine uses; `ours` are its processes."""
    shown = []
    for item in found:
        if chosen != "all" and item.index not in chosen:
            continue
        entry: dict[str, Any] = {
            "index": item.index,
            "memory_used_mib": item.memory_used_mib,
            "memory_total_mib": item.memory_total_mib,
            "utilization_pct": item.utilization_pct,
            "power_w": item.power_w,
        }
        held = [memory for pid, memory in item.processes if pid in ours]
        if held and None not in held:
            entry["ours_mib"] = sum(memory for memory in held if memory is not None)
        shown.append({key: value for key, value in entry.items() if value is not None})
    return {"gpus": shown}


def exit(
    returncode: int | None, kills: int | None, launched: float, pids: set[int]
) -> dict[str, Any]:
    """Of an `exit` event. `kills`: by the cgroup's counter; `pids`: whose end it may be."""
    fields: dict[str, Any] = {} if returncode is None else {"returncode": returncode}
    if kills is not None:
        fields.update(oom_kills=kills, oom=kills > 0)
    if not kills:
        kernel = oom.kernel_log(launched)
        if kernel.killed is not None:
            fields["oom"] = bool(pids & set(kernel.killed))
        if kernel.xid is not None:
            fields["xid"] = kernel.xid
    if _full("/dev/shm", SHM_FULL_MIB):
        fields["shm_full"] = True
    return fields


def frozen(folder: Path | None, main_pid: int) -> bool:
    """Whether the engine's cgroup is frozen: v2 cgroup.events, v1 the main process's freezer."""
    if folder is not None:
        try:
            return "frozen 1" in (folder / "cgroup.events").read_text()
        except OSError:
            pass  # v1: its freezer has a hierarchy of its own
    return freezer.frozen(main_pid)


def _full(path: str, limit_mib: int) -> bool:
    """Whether less than `limit_mib` are free; a file system that tells no size is not full."""
    try:
        found = os.statvfs(path)
    except OSError:
        return False
    return found.f_blocks > 0 and found.f_bavail * found.f_frsize < limit_mib * 2**20
