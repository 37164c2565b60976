"""Each row of the table in docs/operations.md: what a change of the inventory, or of the host by hand, does
to what runs."""

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
READ_BY_THE_DEPLOY = ("restart", "compile_cache.share")


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


HAND = {
    "nccl.env` of the live release: another content": effects.RESTART,
    "a file of the live release is missing": effects.RESTART,
    "written after the engine's start, and is right": effects.RESTART,
    "a file of the live release: another mode": effects.RIGHTS,
    "the unit's file: `Description`": effects.RELOAD,
    "the unit's file: any other setting": effects.RESTART,
    "the unit's file is missing": effects.RELOAD,
    "the unit's file: another mode": effects.RELOAD,
    "systemd has not read the unit": effects.RELOAD,
    "a drop-in of somebody else": effects.NOTHING,
    "the unit does not start at boot": effects.ENABLE,
    "the unit is down": effects.START,
    "a unit that the engine replaces": effects.STOP,
    "`/etc/sglangctl/engines/NAME.json`": effects.WATCH,
    "the watch's unit": effects.WATCH,
    "the watch does not run": effects.WATCH,
    "the log's folder, a cache folder, the log's rotation: missing": effects.WRITE,
    "the log's folder, a cache folder: another mode": effects.RIGHTS,
    "a run wrote the live release again": effects.RESTART,
    "a switch was interrupted": effects.RESTART,
}


@pytest.mark.parametrize("what", effects.BY_HAND)
def test_what_was_changed_by_hand_is_put_right_in_proportion(what: str) -> None:
    (wanted,) = [effect for text, effect in HAND.items() if text in what]
    assert effects.by_hand(what) == wanted
