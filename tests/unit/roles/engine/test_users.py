"""A user per engine, for those that do not run yet."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from roles.engine import users
from roles.inventory.build import own_user
from roles.inventory.model import EngineSpec
from tests.support.inventory_case import engine as engine_of


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
    (engine,) = users.settled([unnamed], now)
    assert engine.user == engine.group == user


def test_what_the_inventory_names_is_it() -> None:
    named = engine_of("user: kimi")
    assert users.settled([named], {"e": "sglang"}) == (named,)
    assert users.ask([named]) == {}  # and nobody is asked


def test_names_that_users_cannot_have() -> None:
    assert own_user("chat") == "sglang-chat"
    long = own_user("a" * 40)
    assert len(long) == 32 and long != own_user("a" * 39 + "b")
    assert own_user("build") != "sglang-build"


@pytest.mark.parametrize("text", ["", "x", "[]", "[" * 100_000, '{"name": 1}', '{"user": "x"}'])
def test_a_hosts_answer_is_data(text: str) -> None:
    good = json.dumps({"name": "e", "user": "sglang"})
    assert users.users_in(f"{good}\n  {good}\n{text}") == {"e": "sglang"}
    assert users.users_in(text) == {}


def test_the_first_user_of_an_engine_reaches_everything(unnamed: EngineSpec) -> None:
    """Nothing of it was rendered before the host had been asked."""
    from roles.inventory.model import HostSpec
    from roles.stages.desired import make

    shared = make(HostSpec("h", users.settled([unnamed], {"e": "sglang"})))
    own = make(HostSpec("h", users.settled([unnamed], {})))
    assert "sglang-e" not in str(shared.request["users"]) and shared.request["users"] == ["sglang"]
    assert own.request["users"] == ["sglang-e"]
    assert b"User=sglang-e\n" in own.engines[0].release.files["sglang.service"]
    assert b"User=sglang\n" in shared.engines[0].release.files["sglang.service"]
    explicit = make(HostSpec("h", (replace(unnamed, user="sglang", user_is_named=True),)))
    assert explicit.engines[0].release.digest == shared.engines[0].release.digest
