"""Prometheus' own programs for tests: of this machine, or of Debian's package in .cache (packages.sh)."""

from __future__ import annotations

from pathlib import Path

from tests.support.tools import leave_out, which

CACHED = Path(__file__).resolve().parents[2] / ".cache" / "prometheus" / "usr" / "bin"


def program(name: str) -> str:
    """The path of `promtool` or `prometheus`; without it the test is left out, or fails under `make test`."""
    found = which(name) or (str(CACHED / name) if (CACHED / name).exists() else None)
    if found is None:
        leave_out(f"{name} is not here: tests/hosts/packages.sh test")
    return found
