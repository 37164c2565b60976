"""The schema: every key is described, and every key changes something that leaves the controller."""

from __future__ import annotations

import copy
import json
from collections.abc import Iterator
from dataclasses import asdict, fields
from pathlib import Path
from typing import Any

import jsonschema
import paramiko
import pytest

from roles.inventory import schema
from roles.inventory.document import Document, read
from roles.inventory.load import build
from roles.inventory.render import engine_json, host_json, render, venv_path
from sglangctl.state.config import Limits, Readiness

INVENTORY = schema.SCHEMA.parent


def test_the_schema_is_one() -> None:
    """Here and not in each run: it costs 50 ms."""
    jsonschema.Draft202012Validator.check_schema(schema.load())


def keys(part: dict[str, Any], *where: str) -> Iterator[tuple[tuple[str, ...], dict[str, Any]]]:
    for key, item in part.get("properties", {}).items():
        yield (*where, key), item
        yield from keys(item, *where, key)


ENGINE_KEYS = dict(keys(schema.definition("engine")))
HOST_KEYS = dict(keys(schema.definition("host")))
ALL_KEYS = {**dict(keys(schema.load())), **HOST_KEYS, **ENGINE_KEYS}


def test_it_is_a_schema_of_draft_2020_12() -> None:
    jsonschema.Draft202012Validator.check_schema(schema.load())
    assert schema.load()["$schema"] == "https://json-schema.org/draft/2020-12/schema"


@pytest.mark.parametrize("key", ALL_KEYS, ids=".".join)
def test_a_key_has_description_unit_default_and_example(key: tuple[str, ...]) -> None:
    item = ALL_KEYS[key]
    assert item["description"].endswith(".")
    assert item["x-unit"]
    assert item["examples"]
    if "properties" in item:
        assert item["additionalProperties"] is False
    elif key not in {("model", "path"), ("hosts",), ("engines",)}:
        assert ("default" in item) != ("x-default" in item)
    if "default" in item:
        assert item["examples"][0] != item["default"]


@pytest.mark.parametrize("key", ENGINE_KEYS, ids=".".join)
def test_defaults_and_examples_are_valid(key: tuple[str, ...]) -> None:
    item = ENGINE_KEYS[key]
    validator = jsonschema.Draft202012Validator({**item, "$defs": schema.load()["$defs"]})
    for value in [*item["examples"], *([item["default"]] if "default" in item else [])]:
        validator.validate(value)


@pytest.mark.parametrize(
    "name", ["minimal.example.yml", "kimi-8x-rtx-pro-6000.example.yml", "container.yml"]
)
def test_an_editor_accepts_the_examples(name: str) -> None:
    content = read(INVENTORY / name).content
    jsonschema.Draft202012Validator(schema.load()).validate(content)


@pytest.mark.parametrize(
    ("kind", "key"), [(Limits, ("readiness", "limits")), (Readiness, ("readiness",))]
)
def test_the_host_program_has_the_same_fields_and_defaults(
    kind: type, key: tuple[str, ...]
) -> None:
    """A new field of sglangctl/state/config.py goes into inventory/schema.json, or this fails."""
    properties = {
        name: item for name, item in ENGINE_KEYS[key]["properties"].items() if name != "limits"
    }
    expected = {item.name: item.default for item in fields(kind)}
    assert {name: item.get("default") for name, item in properties.items()} == expected


# What a key needs around it, and a second value where its example alone would be refused.
SPECULATIVE = {"path": "/d", "steps": 3, "topk": 2, "draft_tokens": 4}
CONTEXT: dict[tuple[str, ...], dict[str, Any]] = {
    ("drafter", name): {"drafter": SPECULATIVE} for name in SPECULATIVE
} | {
    ("drafter", "algorithm"): {"drafter": SPECULATIVE},
    ("tensor_parallel",): {"gpus": [0, 1]},
    ("kernel", "patches"): {"kernel": {"git": {"commit": "a" * 40}}},
}
VALUES = {
    ("drafter", "steps"): 5,
    ("drafter", "topk"): 3,
    ("drafter", "draft_tokens"): 8,
    ("install", "packages"): ["nvidia-nccl-cu13==2.28.9"],
    ("model", "path"): "/models/other",
    ("kernel", "source"): "none",
    ("kernel", "patches"): ["secrets/kimi.key"],
    ("kernel", "build_host"): "h",
}


def outcome(
    host: dict[str, Any], folder: Path, bases: dict[str, Any] | None = None
) -> dict[str, Any]:
    """Everything that a host's keys lead to: pyinfra's data, what lands on the host, what the
    controller itself looks at."""
    content = {"engines": bases or {}, "hosts": {"h": host}}
    (entry,) = build(Document("f", content), folder, {"KIMI_API_KEY": "from-the-environment"}).hosts
    assert entry.errors == ()
    assert entry.spec is not None
    result: dict[str, Any] = {"data": entry.data, "host.json": host_json(entry.spec)}
    for engine in entry.spec.engines:
        release = render(engine, venv=venv_path(engine))
        result[engine.name] = {
            **release.files,
            "venv": asdict(engine.install),
            "config": engine_json(engine),
            # roles/sgl_kernel takes its requests from it: tests/unit/roles/sgl_kernel/test_kernel_role.py.
            "kernel": asdict(engine.kernel),
            "venv_path": venv_path(engine),
            # What a deploy decides by: tests/unit/roles/switch/test_choosing.py.
            "decides": (engine.restart, engine.was, entry.spec.prune),
            # What its stage shares: tests/container/test_rollout.py.
            "shares": engine.compile_cache.share,
        }
    return result


def put(document: dict[str, Any], where: tuple[str, ...], value: Any) -> None:
    for key in where[:-1]:
        document = document.setdefault(key, {})
    document[where[-1]] = value


def leaves(known: dict[tuple[str, ...], dict[str, Any]]) -> list[tuple[str, ...]]:
    return [key for key, item in known.items() if "properties" not in item]


@pytest.mark.parametrize("key", leaves(ENGINE_KEYS), ids=".".join)
def test_every_key_of_an_engine_is_read(key: tuple[str, ...], tmp_path: Path) -> None:
    (tmp_path / "secrets").mkdir()
    (tmp_path / "secrets" / "kimi.key").write_text("from-the-file\n")
    engine = {"model": {"path": "/m"}, **copy.deepcopy(CONTEXT.get(key, {}))}
    bases = {"kimi": {"port": 8000}} if key == ("base",) else {}
    before = outcome({"engines": {"e": copy.deepcopy(engine)}}, tmp_path, bases)
    put(engine, key, VALUES.get(key, ENGINE_KEYS[key]["examples"][0]))
    assert outcome({"engines": {"e": engine}}, tmp_path, bases) != before


@pytest.mark.parametrize("key", leaves(HOST_KEYS), ids=".".join)
def test_every_key_of_a_host_is_read(
    key: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / ".ssh").mkdir()
    paramiko.RSAKey.generate(1024).write_private_key_file(str(tmp_path / ".ssh/id_ed25519"))
    (tmp_path / "ssh_config").touch()
    host: dict[str, Any] = {"engines": {"e": {"model": {"path": "/m"}}}}
    before = outcome(host, tmp_path, {"kimi": {"model": {"path": "/m"}}})
    put(host, key, HOST_KEYS[key]["examples"][0])
    assert outcome(host, tmp_path, {"kimi": {"model": {"path": "/m"}}}) != before


@pytest.mark.parametrize(
    "key", [key for key in leaves(ENGINE_KEYS) if "default" in ENGINE_KEYS[key]], ids=".".join
)
def test_a_default_is_what_leaving_it_out_means(key: tuple[str, ...], tmp_path: Path) -> None:
    engine: dict[str, Any] = {"model": {"path": "/m"}, **copy.deepcopy(CONTEXT.get(key, {}))}
    if key[0] == "drafter":
        engine["drafter"].pop(key[1], None)
    if key[0] == "acceptance":
        engine["acceptance"] = {}
    without = outcome({"engines": {"e": copy.deepcopy(engine)}}, tmp_path)
    put(engine, key, copy.deepcopy(ENGINE_KEYS[key]["default"]))
    assert outcome({"engines": {"e": engine}}, tmp_path) == without


def test_the_schema_is_formatted_as_it_would_be_written() -> None:
    text = schema.SCHEMA.read_text(encoding="utf-8")
    assert json.dumps(json.loads(text), indent=2) + "\n" == text


def test_what_is_wrong_is_told_each_time_and_what_only_looks_the_same_too() -> None:
    def told(document: Any) -> list[tuple[Any, ...]]:
        found: list[tuple[Any, ...]] = []
        schema.validate("engine", document, lambda *one: found.append(one))
        return found

    right = {"model": {"path": "/m"}, "port": 8000, "rollback": True}
    assert told(right) == told(copy.deepcopy(right)) == []
    # To Python these are equal to what is right.
    for wrong in ({**right, "port": 8000.0}, {**right, "rollback": 1}):
        assert wrong == right and len(told(wrong)) == len(told(wrong)) == 1
