"""Flags: what we own, what is a secret, and how SGLang gets the rest."""

from __future__ import annotations

import argparse
import json

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from roles.inventory import flags
from roles.inventory.render import render
from tests.support.inventory_case import engine, engine_errors


class OffForm(argparse.BooleanOptionalAction):
    """A switch with --no-."""


def parser() -> argparse.ArgumentParser:
    """A server with one flag of each kind that SGLang has."""
    result = argparse.ArgumentParser()
    result.add_argument("--model-path", required=True)
    for name in ("--served-model-name", "--host", "--text", "--chat-template"):
        result.add_argument(name)
    for name in ("--port", "--tp-size", "--number"):
        result.add_argument(name, type=int)
    result.add_argument("--fraction", type=float)
    result.add_argument("--switch", action="store_true")
    result.add_argument("--off-switch", action="store_true")
    result.add_argument("--enable-tf32-matmul", action=OffForm)
    result.add_argument("--dllm-fdfo", action=OffForm)
    result.add_argument("--disable-cuda-graph", action=argparse.BooleanOptionalAction)
    result.add_argument("--several", nargs="+")
    result.add_argument("--document", type=json.loads)
    return result


def words_of_the_config_file(text: str) -> list[str]:
    """How SGLang turns its --config file into words; SystemExit where it refuses a key."""
    words: list[str] = []
    for key, value in yaml.safe_load(text).items():
        if key in ("enable-tf32-matmul", "dllm-fdfo", "disable-cuda-graph"):
            raise SystemExit(f"unsupported config option {key}")
        if isinstance(value, bool):
            # Every switch of this parser stores true; for those false is left out.
            words += [f"--{key}"] if value else []
        elif isinstance(value, list):
            words += [f"--{key}", *map(str, value)] if value else []
        else:
            assert not isinstance(value, dict), "would be written by another json.dumps"
            words += [f"--{key}", str(value)]
    return words


def parsed(given_flags: dict) -> dict:
    """What SGLang makes of flags: config file first, then the command line."""
    config, arguments = flags.split(given_flags)
    ours = {"model-path": '"/m"', **config}
    text = "".join(f"{key}: {value}\n" for key, value in ours.items())
    return vars(parser().parse_args(words_of_the_config_file(text) + arguments))


@pytest.mark.parametrize(
    ("given_flags", "expected"),
    [
        ({"text": "--host=evil"}, {"text": "--host=evil", "host": None}),
        ({"text": "-x"}, {"text": "-x"}),
        ({"text": ""}, {"text": ""}),
        ({"text": "a b $HOME %h \"' ;"}, {"text": "a b $HOME %h \"' ;"}),
        ({"text": "no"}, {"text": "no"}),
        ({"text": "1e-05"}, {"text": "1e-05"}),
        ({"text": "line\nbreak"}, {"text": "line\nbreak"}),
        ({"number": -1}, {"number": -1}),
        ({"fraction": 1e-05}, {"fraction": 1e-05}),
        ({"fraction": -1e-05}, {"fraction": -1e-05}),
        ({"switch": True, "off-switch": False}, {"switch": True, "off_switch": False}),
        ({"enable-tf32-matmul": True}, {"enable_tf32_matmul": True}),
        ({"enable-tf32-matmul": False}, {"enable_tf32_matmul": False}),
        ({"disable-cuda-graph": True}, {"disable_cuda_graph": True}),
        ({"disable-cuda-graph": False}, {"disable_cuda_graph": None}),
        ({"several": ["a", "b c", 3]}, {"several": ["a", "b c", "3"]}),
        ({"several": []}, {"several": None}),
        (
            {"document": {"a": 1e-05, "b": [True, None], "c": {"d": "x\n"}}},
            {"document": {"a": 1e-05, "b": [True, None], "c": {"d": "x\n"}}},
        ),
    ],
)
def test_sglang_gets_what_the_inventory_says(given_flags: dict, expected: dict) -> None:
    result = parsed(given_flags)
    assert {key: result[key] for key in expected} == expected


PRINTABLE = st.text(st.characters(codec="utf-8", exclude_characters="\0"), max_size=12)


@given(PRINTABLE.filter(lambda text: text != "--"))
def test_a_text_is_never_taken_for_an_option(text: str) -> None:
    result = parsed({"text": text})
    assert result["text"] == text
    assert result["host"] is None
    assert result["switch"] is False


def test_refused_flags_go_onto_the_command_line() -> None:
    config, arguments = flags.split(
        {"disable-cuda-graph": True, "cuda-graph-max-bs": 16, "lora-paths": ["a=/x"], "x": 1}
    )
    assert config == {"x": "1"}
    assert arguments == ["--cuda-graph-max-bs=16", "--disable-cuda-graph", "--lora-paths", "a=/x"]


@pytest.mark.parametrize("name", ["host", "por", "tp", "tensor-parallel", "api", "model", "m"])
def test_owned_flags_are_found_by_their_beginnings(name: str) -> None:
    assert flags.owner(name) is not None


@pytest.mark.parametrize("name", ["mem-fraction-static", "hostname", "tp-size-x", "log-level"])
def test_other_flags_are_not_ours(name: str) -> None:
    assert flags.owner(name) is None


def test_no_flag_that_we_set_is_left_to_the_inventory() -> None:
    spec = engine(
        "drafter: {path: /d, steps: 3, topk: 1, draft_tokens: 4}\napi_key: {env: K}", K="k" * 20
    )
    written = yaml.safe_load(render(spec, venv="/v").files["engine.yaml"])
    assert set(written) <= set(flags.OWNED)
    assert len(written) == 11


def test_a_secret_flag_takes_a_reference_and_is_written_to_the_config_file_only() -> None:
    spec = engine("flags: {admin-api-key: {env: ADMIN}}", ADMIN="admin-secret-1")
    release = render(spec, venv="/v")
    holders = [name for name, content in release.files.items() if b"admin-secret-1" in content]
    assert holders == ["engine.yaml"]
    assert yaml.safe_load(release.files["engine.yaml"])["admin-api-key"] == "admin-secret-1"


@pytest.mark.parametrize("value", ["hunter2hunter2", "{file: 1}", "{file: a, env: B}", "[a]", "5"])
def test_a_secret_flag_in_clear_is_refused_and_not_shown(value: str) -> None:
    (error,) = engine_errors(f"flags: {{admin-api-key: {value}}}")
    assert error.startswith("flags.admin-api-key: found a value in clear (it is not shown)")
    assert "hunter2" not in error
