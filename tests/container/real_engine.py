"""The real engine on a processor as a systemd unit in a container host."""

from __future__ import annotations

from typing import Any, ClassVar

from roles.remote import program
from tests.container.engine_unit import USER, EngineUnit, put
from tests.hosts.host import Host

VENV = "/opt/sglang/venvs/real"
WANTED: dict[str, Any] = {
    "model": {"path": "/models/tiny-qwen3"},
    "install": {"system_site_packages": True, "pip_arguments": ["--no-deps"]},
    "flags": {
        "device": "cpu",
        "model-impl": "transformers",
        "attention-backend": "torch_native",
        "max-total-tokens": 8192,
        "cuda-graph-backend-decode": "disabled",
        "cuda-graph-backend-prefill": "disabled",
    },
}
"""The engine as an inventory says it; no test changes what is in here."""


class RealEngine(EngineUnit):
    kind = "real"
    venv = VENV
    model = "/models/tiny-qwen3"
    flags: ClassVar = {
        "device": "cpu",
        "model-impl": "transformers",
        "attention-backend": "torch_native",
        "disable-cuda-graph": True,
        "max-total-tokens": 8192,
    }
    limits: ClassVar = {"start_s": 900}
    patience = 10.0


def prepared(made: Host) -> Host:
    """A host with the real engine in a venv, its user, and sglangctl."""
    made.exec("sh", "-c", f"id {USER} >/dev/null 2>&1 || useradd --system --user-group {USER}")
    made.exec("python3", "-m", "venv", "--system-site-packages", VENV)
    made.exec(
        f"{VENV}/bin/pip", "install", "--quiet", "--no-deps", "sglang==0.5.23", timeout=600
    )  # fmt: skip
    put(made, {program.path(): (0o755, program.archive())})
    made.exec("ln", "-sfn", program.path(), program.LINK)
    return made
