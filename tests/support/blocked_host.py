"""A host on which everything is in the way of a switch."""

from __future__ import annotations

from typing import Any

from roles.engine.desired import DesiredEngine, desired_engine
from tests.support.inventory_case import engine_text, load, only


def listening(pid: int, unit: str | None) -> dict[str, Any]:
    owner = {"pid": pid, "name": "sshd", "user": "root", "unit": unit}
    return {"listening": [{"address": "0.0.0.0", "port": 8000, "owners": [owner]}]}


def facts(**more: Any) -> dict[str, Any]:
    """A host on which everything is in the way of the engine `e` at port 8000."""
    return {
        "files": {
            "/etc/systemd/system/sglang-e.service": {"kind": "file", "text": "[Unit]\n"},
            "/m": {"kind": "absent"},
            "/d": {"kind": "unknown"},
        },
        "plans": {"e": {"refused": [{}], "lines": ["refused", "  who"]}},
        "gpus": [{}],
        **listening(46, "ssh.service"),
        **more,
    }


def whole_engine(body: str) -> DesiredEngine:
    entry = only(load(engine_text(f"port: 8000\n{body}")))
    assert entry.spec is not None, entry.errors
    return desired_engine(entry.spec.engines[0])


IN_THE_WAY = [
    "/etc/systemd/system/sglang-e.service was not made by sglang-provision",
    "model.path /m is not on the host (absent)",
    "drafter.path /d is not on the host (unknown)",
    "refused\n  who",
    "tensor_parallel is 4 and the host has 1 GPUs",
    "port 8000 is held by sshd",
]
