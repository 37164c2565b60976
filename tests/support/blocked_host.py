"""A host on which everything is in the way of a switch."""

from __future__ import annotations

from typing import Any

from roles.engine.desired import DesiredEngine, desired_engine
from tests.support.inventory_case import engine_text, load, only

FOUND = [
    {"id": "unit-foreign", "level": "fail", "seen": "that unit is not ours", "fix": "move it"},
    {"id": "weights-missing", "level": "fail", "seen": "/m is missing", "fix": "fetch it"},
    {"id": "gpus-held", "level": "fail", "seen": "refused\n  who", "fix": ""},
    {"id": "weights-config", "level": "warn", "seen": "vocab_size 1", "fix": ""},
    {"id": "chat-template", "level": "info", "seen": "no template", "fix": ""},
]
"""What the host's preflight says of it."""
IN_THE_WAY = ["that unit is not ours: move it", "/m is missing: fetch it", "refused\n  who"]


def listening(pid: int, unit: str | None) -> dict[str, Any]:
    owner = {"pid": pid, "name": "sshd", "user": "root", "unit": unit}
    return {"listening": [{"address": "0.0.0.0", "port": 8000, "owners": [owner]}]}


def facts(**more: Any) -> dict[str, Any]:
    """A host on which everything is in the way of the engine `e` at port 8000."""
    return {
        "files": {
            "/etc/systemd/system/sglang-e.service": {"kind": "file", "text": "[Unit]\n"},
        },
        "plans": {"e": {"refused": [{}], "lines": ["refused", "  who"]}},
        "gpus": [{}],
        **listening(46, "ssh.service"),
        "preflight": {"e": FOUND},
        **more,
    }


def whole_engine(body: str) -> DesiredEngine:
    entry = only(load(engine_text(f"port: 8000\n{body}")))
    assert entry.spec is not None, entry.errors
    return desired_engine(entry.spec.engines[0])
