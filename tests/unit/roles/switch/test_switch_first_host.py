"""Whether the other hosts of a fleet may follow the first one."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest
from pyinfra.api import State

from roles.switch import rollout
from roles.switch.rollout import unfit


def fleet(**changes: Any) -> State:
    """Host `a`, connected to, with one operation that is done; executing."""
    first = SimpleNamespace(name="a")
    done = SimpleNamespace(operation_meta=SimpleNamespace(is_complete=lambda: True))
    made: dict[str, Any] = {
        "inventory": SimpleNamespace(get_host=lambda name: first if name == "a" else None),
        "is_host_in_limit": lambda host: True,
        "failed_hosts": [],
        "activated_hosts": [first],
        "is_executing": True,
        "ops": {"a": {"x": done, "now": UNDER_WAY, "later": UNDER_WAY}},
        "get_op_order": lambda: ["x", "elsewhere", "now", "later"],
    }
    for key, value in changes.items():
        made[key] = [first] if value == "it" else value
    return cast("State", SimpleNamespace(**{**made, "ops": _Ops(made["ops"]["a"])}))


class _Ops:
    def __init__(self, of_first: dict[str, Any]) -> None:
        self.of_first = of_first

    def __getitem__(self, host: Any) -> dict[str, Any]:
        assert host.name == "a"
        return self.of_first


UNDER_WAY = SimpleNamespace(operation_meta=SimpleNamespace(is_complete=lambda: False))
EARLY = {"a": {"x": UNDER_WAY, "now": UNDER_WAY}}


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({}, None),
        ({"failed_hosts": "it"}, "failed"),
        ({"activated_hosts": []}, "failed"),
        ({"ops": EARLY}, "--no-wait"),
        ({"ops": EARLY, "is_executing": False}, None),
        ({"failed_hosts": "it", "is_host_in_limit": lambda host: False}, None),
    ],
    ids=["done", "failed", "not reached", "under way", "a plan", "left out by --limit"],
)
def test_whether_the_others_may_follow(
    changes: dict[str, Any], said: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rollout, "host", SimpleNamespace(executing_op_hash="now"))
    found = unfit(fleet(**changes), "a")
    assert (found is None) == (said is None)
    assert said is None or said in str(found)
