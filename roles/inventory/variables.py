"""SGLANG_* variables that the engine's release does not read: a warning, as it ignores them.

Only names; which values a variable takes is nowhere declared for all of them.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from roles.inventory import variable_names
from roles.inventory.errors import closest
from roles.inventory.schema import Report

APART = ("SGLANG_CACHE_DIT_", "SGLANG_DIFFUSION_")
"""Of other servers in the same package."""


def check(engine: Mapping[str, Any], warn: Report) -> None:
    """Warn of names that no release that we know reads, or that this one no longer reads."""
    for name, value in engine["environment"].items():
        # SGLang reads SGL_X as SGLANG_X, with a warning.
        full = f"SGLANG_{name[4:]}" if name.startswith("SGL_") else name
        if value is None or not full.startswith("SGLANG_") or full.startswith(APART):
            continue
        bare, same = full[7:], engine["version"] == variable_names.VERSION
        if bare in variable_names.NAMES or (bare in variable_names.GONE and not same):
            continue
        found = f"the variable {name}, which SGLang {variable_names.VERSION} does not read"
        if bare in variable_names.GONE:
            found = f"the variable {name}, which SGLang {variable_names.VERSION} no longer reads"
        near = closest(bare, variable_names.NAMES)
        warn(("environment", name), found, "a variable that it reads", near and f"SGLANG_{near}")
