"""A host's files under a temporary root, with one engine `tiny` in them."""

from __future__ import annotations

import json
import socket
from pathlib import Path
from typing import Any

from tests.support.waiting import until

QUICK = {
    "http_timeout_s": 2.0,
    "generate_timeout_s": 5.0,
    "probe_starting_s": 0.2,
    "probe_serving_s": 0.5,
    "sample_s": 0.3,
    "unresponsive_idle_s": 3.0,
    "unresponsive_busy_s": 6.0,
    "start_s": 60.0,
}


def free_port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return int(free.getsockname()[1])


def write_config(root: Path, port: int, limits: dict[str, Any] | None = None, **more: Any) -> None:
    folder = root / "etc/sglangctl/engines"
    folder.mkdir(parents=True, exist_ok=True)
    document = {
        "v": 1, "name": "tiny", "unit": "sglang-tiny.service", "user": "root", "port": port,
        "listen": "127.0.0.1", "model": "/m", "served_name": "tiny",
        "limits": {**QUICK, **(limits or {})}, **more,
    }  # fmt: skip
    (folder / "tiny.json").write_text(json.dumps(document))


def log_of(root: Path) -> Path:
    path = root / "var/log/sglang/tiny/engine.log"
    path.parent.mkdir(parents=True, exist_ok=True)
    return path


def serves(port: int, seconds: float = 20.0) -> None:
    def answers() -> bool:
        with socket.socket() as client:
            return client.connect_ex(("127.0.0.1", port)) == 0

    until(answers, seconds)
