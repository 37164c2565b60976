"""An engine for a container host with the stand-ins (tests/hosts/standins/install.py)."""

from __future__ import annotations

from typing import Any

ENGINE: dict[str, Any] = {
    "model": {"path": "/models/tiny"},
    "listen": "0.0.0.0",
    "gpus": [0, 1],
    "kernel": {"source": "none"},
    "tensor_parallel": 2,
    "install": {"pip_arguments": ["--no-index", "--find-links=/opt/standins/wheels"]},
    "readiness": {"limits": {"sample_s": 0.5, "respawn_s": 1, "start_s": 60}},
}
"""What the inventory says of it."""
