"""Each row of the table in docs/operations.md: what a change of the inventory does to what runs."""

from __future__ import annotations

from typing import Any

import pytest

from docs import effects
from roles.inventory import schema

KEYS = list(effects.keys(schema.definition("engine")))
STARTED_WITH = (
    *("version", "model.", "drafter.", "tensor_parallel", "gpus", "listen", "port", "flags"),
    *("environment", "nccl.", "user", "install.", "hardening"),
)
"""What the engine's process or its unit is made of."""
READ_BY_THE_DEPLOY = ("restart",)


@pytest.mark.parametrize(("key", "value"), KEYS, ids=[key for key, _ in KEYS])
def test_only_what_the_process_was_started_with_restarts_it(key: str, value: Any) -> None:
    wanted = effects.WATCH
    if any(key == one or (one.endswith(".") and key.startswith(one)) for one in STARTED_WITH):
        wanted = effects.RESTART
    elif key in READ_BY_THE_DEPLOY:
        wanted = effects.NOTHING
    assert effects.effect(*effects.changed(key, value)) == wanted


def test_no_change_does_nothing() -> None:
    engine = effects.engine({"model": {"path": "/m"}})
    assert effects.effect(engine, engine) == effects.NOTHING
