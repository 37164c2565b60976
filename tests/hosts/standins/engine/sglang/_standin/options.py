"""STANDIN_* variables: how fast, and what goes wrong. README.md lists them."""

from __future__ import annotations

import os
from functools import cache

ENV_FILE = "/etc/standins/sglang.env"
SHARES = {
    "launching": 0.15,
    "importing": 0.2,
    "connecting": 0.05,
    "loading": 0.25,
    "allocating": 0.05,
    "capturing": 0.15,
    "binding": 0.0,
    "warming": 0.15,
}


@cache
def settings() -> dict[str, str]:
    """The environment over the file, so that a test can change a deployed engine's manners."""
    found = {}
    path = os.environ.get("STANDIN_ENV_FILE", ENV_FILE)
    if os.path.exists(path):
        with open(path, encoding="utf-8") as file:
            for line in file:
                name, equals, value = line.strip().partition("=")
                if equals and not name.startswith("#"):
                    found[name] = value
    found.update({k: v for k, v in os.environ.items() if k.startswith("STANDIN_")})
    return found


def text(name: str, default: str = "") -> str:
    return settings().get(f"STANDIN_{name}", default)


def number(name: str, default: float) -> float:
    return float(text(name) or default)


def phase_s(phase: str) -> float:
    """Seconds that a phase takes: its own variable, or its share of STANDIN_START_S."""
    return number(f"{phase.upper()}_S", number("START_S", 2.0) * SHARES[phase])


def scaled(seconds: float) -> float:
    """One of the real engine's own waits, times STANDIN_SCALE (default 1: as it really is)."""
    return seconds * number("SCALE", 1.0)


def devices() -> str:
    """The folder of the device nodes."""
    return text("DEVICES", "/dev")


def fault() -> tuple[str, str]:
    """(name, phase) of STANDIN_FAULT, which is `name` or `name@phase`."""
    name, _, phase = text("FAULT").partition("@")
    return name, phase
