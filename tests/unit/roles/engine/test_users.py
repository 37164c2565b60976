"""A user per engine, for those that do not run yet."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from roles.engine import users
from roles.inventory.build import own_user
from roles.inventory.model import EngineSpec
from tests.support.inventory_case import engine as engine_of

SHARED = {"engines": {"e": {"user": "sglang"}}}


@pytest.fixture
def unnamed() -> EngineSpec:
    return engine_of("")


@pytest.mark.parametrize(
    ("now", "user"),
    [
        ({}, "sglang-e"),
        ({"other": "sglang"}, "sglang-e"),
        ({"e": "sglang"}, "sglang"),  # as it runs: no change of the plan
        ({"e": "sglang-e"}, "sglang-e"),
        ({"e": "root"}, "sglang-e"),  # only what we made: a host does not choose
        ({"e": "kimi"}, "sglang-e"),
    ],
)
def test_what_is_not_named(unnamed: EngineSpec, now: dict[str, str], user: str) -> None:
    facts = {"engines": {name: {"user": user} for name, user in now.items()}}
    (engine,) = users.settled([unnamed], facts)
    assert engine.user == engine.group == user


def test_what_the_inventory_names_is_it() -> None:
    named = engine_of("user: kimi")
    assert users.settled([named], SHARED) == (named,)


def test_names_that_users_cannot_have() -> None:
    assert own_user("chat") == "sglang-chat"
    long = own_user("a" * 40)
    assert len(long) == 32 and long != own_user("a" * 39 + "b")
    assert own_user("build") != "sglang-build"


def test_the_first_user_of_an_engine_reaches_everything(unnamed: EngineSpec) -> None:
    from roles.inventory.model import HostSpec
    from roles.stages.desired import make

    shared = make(HostSpec("h", users.settled([unnamed], SHARED)))
    own = make(HostSpec("h", users.settled([unnamed], {})))
    assert "sglang-e" not in str(shared.request["users"]) and shared.request["users"] == ["sglang"]
    assert own.request["users"] == ["sglang-e"]
    assert b"User=sglang-e\n" in own.engines[0].release.files["sglang.service"]
    assert b"User=sglang\n" in shared.engines[0].release.files["sglang.service"]
    explicit = make(HostSpec("h", (replace(unnamed, user="sglang", user_is_named=True),)))
    assert explicit.engines[0].release.digest == shared.engines[0].release.digest


@pytest.mark.parametrize(
    ("runs_as", "user", "asked"), [("sglang", "sglang", 2), (None, "sglang-e", 1)]
)
def test_the_host_is_asked_once_more_only_where_it_keeps_the_shared_user(
    unnamed: EngineSpec, monkeypatch: pytest.MonkeyPatch, runs_as: str | None, user: str, asked: int
) -> None:
    from roles.inventory.model import HostSpec
    from roles.stages import desired

    requests: list[list[str]] = []

    def snapshot(request: dict[str, Any]) -> dict[str, Any]:
        requests.append(request["users"])
        return {"engines": {"e": {"user": runs_as}}}

    monkeypatch.setattr(desired, "snapshot", snapshot)
    monkeypatch.setattr(desired, "read_again", lambda: None)
    monkeypatch.setattr(desired, "host_is_fit", lambda facts, deploy: True)
    monkeypatch.setattr(desired, "inventory_is_right", lambda deploy, need: True)
    data = type(
        "Data", (), {"get": lambda _, key: HostSpec("h", (unnamed,)) if "sglang" in key else None}
    )
    monkeypatch.setattr(desired, "host", type("Host", (), {"data": data()}))
    made = desired.desired_host("deploys/sglang.py")
    assert made is not None and made.engines[0].spec.user == user
    assert len(requests) == asked and requests[-1] == [user]
