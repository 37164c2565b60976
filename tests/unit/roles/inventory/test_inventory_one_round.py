"""All mistakes of an inventory in one round, and none that only follows from another."""

from __future__ import annotations

import copy
import random
from pathlib import Path
from typing import Any

import pytest

from roles.inventory.document import Document
from roles.inventory.errors import Need
from roles.inventory.load import build
from roles.inventory.schema import definition
from roles.stages.desired import make
from tests.support.inventory_case import engine_errors, load, only


def places(errors: list[str]) -> list[str]:
    return sorted(error.split(": found")[0] for error in errors)


def test_schema_rules_secrets_and_files_at_once() -> None:
    errors = engine_errors(
        f"""
        prot: 1
        api_key: {{env: NOT_SET}}
        flags: {{wobble: 1, admin-api-key: {{file: gone}}, port: 3}}
        kernel: {{patches: [gone.patch], git: {{commit: {"a" * 40}}}}}
        nccl: {{overrides: {{NCCL_PROTO: LLL}}}}
        environment: {{HOME: /x}}
        listen: somewhere
        """
    )
    assert places(errors) == [
        "api_key",
        "environment.HOME",
        "flags.admin-api-key",
        "flags.port",
        "flags.wobble",
        "kernel.patches[0]",
        "listen",
        "nccl.overrides.NCCL_PROTO",
        "prot",
    ]


def test_engines_are_compared_although_one_is_wrong_elsewhere() -> None:
    errors = only(
        load(
            """
            hosts:
              h:
                engines:
                  a: {model: {path: /m}, gpus: [0], prot: 1}
                  b: {model: {path: relative}, gpus: [0, 1], port: 30000}
            """
        )
    ).errors
    assert places([error.split("engines.", 1)[1] for error in errors]) == [
        "a.prot",
        "b.gpus",
        "b.model.path",
        "b.port",
    ]


@pytest.mark.parametrize(
    ("body", "place"),
    [
        ("drafter: {path: /d, steps: x, topk: 1, draft_tokens: 9}", "drafter.steps"),
        ("drafter: {path: 5}", "drafter.path"),
        ("version: latest\nflags: {wobble: 1}", "version"),
        ("version: latest\ninstall: {packages: ['sglang==0.5.16']}", "version"),
        ("tensor_parallel: many\ngpus: [0]", "tensor_parallel"),
        ("gpus: some\ntensor_parallel: 4", "gpus"),
        ("kernel: {source: sauce, patches: [x.patch]}", "kernel.source"),
        ("kernel: {source: build, git: {commit: short}}", "kernel.git.commit"),
        ("api_key: {file: a, env: b}", "api_key"),
        ("flags: {admin-api-key: plain-and-clear}", "flags.admin-api-key"),
        ("replaces: [a/b.service, 5]", "replaces[0] replaces[1]"),
    ],
)
def test_nothing_is_told_that_only_follows(body: str, place: str) -> None:
    found = set(places(engine_errors(body)))
    # A patch that does not exist is a mistake of its own.
    assert found - {"kernel.patches[0]"} == set(place.split()), found


@pytest.mark.parametrize("body", ["port: x", "gpus: x", "flags: 5"])
def test_engines_are_not_compared_by_what_is_wrong(body: str) -> None:
    errors = only(
        load(
            f"""
            hosts:
              h:
                engines:
                  a: {{model: {{path: /m}}, {body}}}
                  b: {{model: {{path: /m}}, port: {30000 if "port" in body else 1}}}
            """
        )
    ).errors
    told = [error for error in errors if ".engines.b." in error]
    assert len(told) == ("port" in body)  # both want all GPUs, which is no mistake in a port
    assert not any("b.port" in error for error in told)


VALUES: list[Any] = [
    *(None, 5, -1, 0, 1.5, True, "x", "/a", "", "a\nb", "\ud800", "x" * 300, "0.5.16"),
    *([], [1], [0, 0], ["x", {}], {}, {"a": 1}, {"file": "x"}, {"env": "K"}, {"env": 5}),
]
ODD = [
    *(("flags", "admin-api-key"), ("flags", "device"), ("flags", "wobble"), ("flags", "")),
    *(("environment", "LD_PRELOAD"), ("nccl", "overrides", "PROTO"), ("drafter", "zz"), ("zz",)),
]


def keys(schema: dict[str, Any], above: tuple[str, ...] = ()) -> list[tuple[str, ...]]:
    found = [above] if above else []
    for key, part in schema.get("properties", {}).items():
        found += keys(part, (*above, key))
    return found


def put(document: dict[str, Any], where: tuple[str, ...], value: Any) -> None:
    for key in where[:-1]:
        if not isinstance(document.get(key), dict):
            document[key] = {}
        document = document[key]
    document[where[-1]] = copy.deepcopy(value)


def test_whatever_is_in_an_inventory_it_has_mistakes_or_can_be_rendered() -> None:
    chance = random.Random(20261129)
    known = [*keys(definition("engine")), *ODD]
    rendered = 0
    for _ in range(400):
        engines: dict[str, Any] = {}
        for name in chance.sample(["e", "f", "E", "bad/name"], chance.randint(1, 2)):
            engines[name] = {"model": {"path": "/m"}}
            for _ in range(chance.randint(0, 3)):
                put(engines[name], chance.choice(known), chance.choice(VALUES))
        bases: dict[str, Any] = {"e": {}}
        put(bases["e"], chance.choice(known), chance.choice(VALUES))
        document = Document("f", {"engines": bases, "hosts": {"h": {"engines": engines}}})
        (entry,) = build(document, Path("/nonexistent"), {"K": "sk-0123456789"}).hosts
        assert (entry.spec is None) == any(one.need < Need.FILES for one in entry.mistakes)
        assert all(one.text.isprintable() for one in entry.mistakes)
        if entry.spec is not None and not entry.mistakes:
            make(entry.spec)
            rendered += 1
    assert rendered >= 5
