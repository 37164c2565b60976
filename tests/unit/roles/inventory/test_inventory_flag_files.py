"""Files that flags name: absolute on the host, or of the controller and part of the release."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import yaml

from roles.inventory import flag_files, flag_names
from roles.inventory.model import EngineSpec
from roles.inventory.render import Release, engine_json, render
from sglangctl.state.release import SHIPPED, mode_of
from tests.support.inventory_case import engine, engine_errors


def released(spec: EngineSpec) -> tuple[Release, dict[str, str]]:
    release = render(spec, venv="/v")
    return release, yaml.safe_load(release.files["engine.yaml"])


def test_a_file_of_the_controller_becomes_a_file_of_the_release(tmp_path: Path) -> None:
    (tmp_path / "t").mkdir()
    (tmp_path / "t/kimi.jinja").write_text("{{ messages }}")
    spec = engine("flags: {chat-template: {file: t/kimi.jinja}}", folder=tmp_path)
    release, config = released(spec)
    name = "flag-chat-template.jinja"
    assert config["chat-template"] == f"/var/lib/sglangctl/e/current/{name}"
    assert release.files[name] == b"{{ messages }}"
    assert SHIPPED.fullmatch(name) and mode_of(name) == 0o640
    assert name in json.loads(release.files["manifest.json"])["files"]
    assert json.loads(engine_json(spec))["preflight"]["files"] == []


def test_another_text_is_another_release(tmp_path: Path) -> None:
    digests = set()
    for text in ("a", "b", "a"):
        (tmp_path / "x.json").write_text(text)
        spec = engine("flags: {speculative-adaptive-config: {file: x.json}}", folder=tmp_path)
        digests.add(render(spec, venv="/v").digest)
    assert len(digests) == 2


def test_where_sglang_wants_a_mark_before_the_path(tmp_path: Path) -> None:
    (tmp_path / "h.toml").write_text("a = 1")
    flag = "hicache-storage-backend-extra-config"
    _, config = released(engine(f"flags: {{{flag}: {{file: h.toml}}}}", folder=tmp_path))
    assert config[flag] == f"@/var/lib/sglangctl/e/current/flag-{flag}.toml"


@pytest.mark.parametrize("flag", sorted(flag_files.SHIPPABLE))
def test_every_such_flag_is_one_of_sglang_and_makes_a_name_that_the_host_takes(flag: str) -> None:
    assert flag in flag_names.TEXTS
    for path in ("x", "x.jinja", "a/b.j-son", "x." + "y" * 40, "x.\u00e9"):
        assert SHIPPED.fullmatch(flag_files.shipped_name(flag, path))


@pytest.mark.parametrize(
    ("content", "why"),
    [(None, "is not there"), (b"\xff\xfe", "is not UTF-8"), (b"x" * 1_100_000, "larger than")],
)
def test_a_file_that_cannot_be_shipped(tmp_path: Path, content: bytes | None, why: str) -> None:
    if content is not None:
        (tmp_path / "x.jinja").write_bytes(content)
    (error,) = engine_errors("flags: {chat-template: {file: x.jinja}}", folder=tmp_path)
    assert error.startswith("flags.chat-template.file: found ") and why in error


@pytest.mark.parametrize("value", ["{env: X}", "{file: a, env: X}", "{a: 1}"])
def test_a_mapping_that_names_no_file(value: str) -> None:
    (error,) = engine_errors(f"flags: {{chat-template: {value}}}", X="y" * 9)
    assert error == "flags.chat-template: found a mapping; allowed: a path or {file: PATH}"


@pytest.mark.parametrize(
    ("given", "place", "path"),
    [
        ("chat-template: kimi.jinja", "chat-template", "kimi.jinja"),
        ("chat-template: ~/kimi", "chat-template", "~/kimi"),
        ("tokenizer-path: Qwen/Qwen3-8B", "tokenizer-path", "Qwen/Qwen3-8B"),
        ("lora-paths: [a=/x, b=org/lora]", "lora-paths[1]", "org/lora"),
        ("lora-paths: [relative]", "lora-paths[0]", "relative"),
        ("lora-paths: [{lora_name: a, lora_path: x}]", "lora-paths[0].lora_path", "x"),
        ("quantization-param-path: kv.json", "quantization-param-path", "kv.json"),
        ("quantization-param-path: /a/../b", "quantization-param-path", "/a/../b"),
        (
            "hicache-storage-backend-extra-config: '@h.toml'",
            "hicache-storage-backend-extra-config",
            "h.toml",
        ),
    ],
)
def test_a_path_that_no_host_could_find(given: str, place: str, path: str) -> None:
    (error,) = engine_errors(f"flags: {{{given}}}")
    assert error.startswith(f'flags.{place}: found "{path}"; allowed: an absolute path on the host')


def test_what_is_on_the_host_is_looked_at_there_and_mounted_first() -> None:
    spec = engine(
        """
        flags:
          chat-template: /t/kimi.jinja
          tokenizer-path: /models/tok
          lora-paths: [a=/l/a, {lora_name: b, lora_path: /l/b}]
          hicache-storage-backend-extra-config: "@/h.toml"
        """
    )
    paths = ["/h.toml", "/l/a", "/l/b", "/models/tok", "/t/kimi.jinja"]
    assert json.loads(engine_json(spec))["preflight"]["files"] == paths
    unit = render(spec, venv="/v").files["sglang.service"].decode()
    (mounts,) = [line for line in unit.splitlines() if line.startswith("RequiresMountsFor=")]
    assert set(paths) < set(mounts.partition("=")[2].split())


@pytest.mark.parametrize(
    "given",
    [
        "chat-template: chatml",
        "completion-template: deepseek_coder",
        "init-expert-location: trivial",
        "hicache-storage-backend-extra-config: '{\"a\": 1}'",
        "deepep-config: {a: 1}",
        "watermark-config: '{}'",
    ],
)
def test_what_is_no_path(given: str) -> None:
    spec = engine(f"flags: {{{given}}}")
    assert json.loads(engine_json(spec))["preflight"]["files"] == []
