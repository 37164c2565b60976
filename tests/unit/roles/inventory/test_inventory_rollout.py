"""`rollout`: which host of a fleet goes first."""

from __future__ import annotations

from pathlib import Path

import pytest

from roles.entry.hosts import pyinfra_hosts
from tests.support.inventory_case import load

HOSTS = "hosts: {a: {engines: {e: {model: {path: /m}}}}, b: {engines: {e: {model: {path: /m}}}}}\n"


def test_it_comes_first_and_every_host_knows_it(tmp_path: Path) -> None:
    file = tmp_path / "hosts.yml"
    file.write_text(HOSTS + "rollout: {first: b}\n")
    found = pyinfra_hosts(file)
    assert [name for name, _ in found] == ["b", "a"]
    assert {data["sglang_first"] for _, data in found} == {"b"}
    file.write_text(HOSTS)
    found = pyinfra_hosts(file)
    assert [name for name, _ in found] == ["a", "b"]
    assert {data["sglang_first"] for _, data in found} == {None}


@pytest.mark.parametrize(
    ("rollout", "said"),
    [
        ("3", "rollout: found 3; allowed: a mapping"),
        ("{frist: a}", 'rollout.frist: found an unknown key; allowed: first; did you mean "first"?'),
        ("{first: c}", "rollout.first: found c"),
        ("{first: [a]}", "rollout.first: found"),
    ],
)  # fmt: skip
def test_a_mistake_in_it_is_every_host_s(rollout: str, said: str) -> None:
    for entry in load(f"{HOSTS}rollout: {rollout}\n").hosts:
        (error,) = entry.errors
        assert said in error.replace('"c"', "c")
        assert entry.spec is None
