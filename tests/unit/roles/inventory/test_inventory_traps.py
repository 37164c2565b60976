"""What people write and do not mean: each is made right, or refused with what to write instead."""

from __future__ import annotations

import copy
from pathlib import Path

import pytest
import yaml

from roles.inventory import InventoryError, load_inventory
from roles.inventory.render import render
from roles.inventory.written import written
from sglangctl.masking.masker import secrets_of
from sglangctl.state.release import FILES
from tests.support.inventory_case import engine, engine_errors, load, only

MODEL = "engines: {e: {model: {path: /m}}}"


def mistake(body: str, model: str = "{path: /m}") -> str:
    (error,) = engine_errors(body, model)
    return error


def test_numbers_keep_their_text_in_the_environment() -> None:
    spec = engine(
        "environment: {FLASHINFER_CUDA_ARCH_LIST: 12.0, A: 1.10, B: 0x1F, C: 1e3, D: 007, E: -0}"
    )
    assert spec.environment == {
        "FLASHINFER_CUDA_ARCH_LIST": "12.0",
        "A": "1.10",
        "B": "0x1F",
        "C": "1e3",
        "D": "007",
        "E": "-0",
    }
    line = b'FLASHINFER_CUDA_ARCH_LIST="12.0"\n'
    assert line in render(spec, venv="/v").files["engine.env"]


def test_numbers_keep_their_text_through_a_base_and_an_anchor() -> None:
    entry = only(
        load(
            """
            engines: {e: &e {model: {path: /m}, environment: {A: 12.0, B: 1.50}}}
            hosts: {h: {engines: {e: {environment: {B: 2.50}}, f: {<<: *e, port: 1, gpus: [0]}}}}
            """
        )
    )
    assert [line for line in entry.errors if "gpus" not in line] == []
    one = only(
        load(
            "engines: {e: {model: {path: /m}, environment: {A: 12.0}}}\nhosts: {h: {engines: {e: }}}"
        )
    )
    assert one.spec is not None and one.spec.engines[0].environment == {"A": "12.0"}


def test_a_written_number_is_a_number() -> None:
    for text, value in (("12.0", 12.0), ("8", 8)):
        number = written(value, text)
        assert number == value and copy.deepcopy(number).text == text  # type: ignore[union-attr]


def test_numbers_keep_their_text_for_nccl() -> None:
    spec = engine("nccl: {overrides: {BUFFSIZE: 0x800000, MIN_NCHANNELS: 8}}")
    assert spec.nccl.environment == {"NCCL_BUFFSIZE": "0x800000", "NCCL_MIN_NCHANNELS": "8"}
    error = mistake("nccl: {overrides: {BUFFSIZE: 8388608.0}}")
    assert error.startswith("nccl.overrides.BUFFSIZE: found 8388608.0; allowed: a whole number")


@pytest.mark.parametrize(("value", "meant"), [("true", "1"), ("false", "0")])
def test_a_switch_of_nccl_is_0_or_1(value: str, meant: str) -> None:
    error = mistake(f"nccl: {{overrides: {{P2P_DISABLE: {value}}}}}")
    assert f"found {value}; " in error and "0 or 1" in error
    assert error.endswith(f'did you mean "{meant}"?')


@pytest.mark.parametrize(("value", "meant"), [("yes", "1"), ("off", "0"), ("'true'", "1")])
def test_words_for_a_switch_of_nccl(value: str, meant: str) -> None:
    error = mistake(f"nccl: {{overrides: {{P2P_DISABLE: {value}}}}}")
    assert "allowed: 0 or 1" in error and error.endswith(f'did you mean "{meant}"?')


@pytest.mark.parametrize(
    ("number", "level"), [("0", "LOC"), ("2", "PXB"), ("3", "PHB"), ("4", "SYS"), ("9", "SYS")]
)
def test_old_numbers_of_nccls_levels(number: str, level: str) -> None:
    error = mistake(f"nccl: {{overrides: {{NCCL_P2P_LEVEL: {number}}}}}")
    assert f"; {number} is {level}" in error and error.endswith(f'did you mean "{level}"?')


@pytest.mark.parametrize("level", ["LOC", "NVL", "NVB", "C2C", "PIX", "PXB", "P2C", "PXN", "PHB"])
def test_all_names_of_nccls_levels(level: str) -> None:
    spec = engine(f"nccl: {{overrides: {{P2P_LEVEL: {level}, NET_GDR_LEVEL: {level}}}}}")
    assert spec.nccl.environment == {"NCCL_P2P_LEVEL": level, "NCCL_NET_GDR_LEVEL": level}


def test_gpus_keep_their_order() -> None:
    spec = engine("gpus: [4, 0, 6, 2]")
    assert spec.gpus == (4, 0, 6, 2)
    assert b'CUDA_VISIBLE_DEVICES="4,0,6,2"\n' in render(spec, venv="/v").files["engine.env"]


@pytest.mark.parametrize(
    ("key", "meant"),
    [
        ("env", "environment"),
        ("tp", "tensor_parallel"),
        ("tp_size", "tensor_parallel"),
        ("dp", "flags.data-parallel-size"),
        ("pp", "flags.pipeline-parallel-size"),
        ("model_path", "model.path"),
        ("model-path", "model.path"),
        ("served_name", "model.served_name"),
        ("host", "listen"),
        ("gpu", "gpus"),
        ("context_length", "flags.context-length"),
        ("mem-fraction-static", "flags.mem-fraction-static"),
        ("prot", "port"),
    ],
)
def test_another_programs_word_for_a_key(key: str, meant: str) -> None:
    error = mistake(f"{key}: x")
    assert error.startswith(f"{key}: found an unknown key; allowed: one of acceptance, ")
    assert error.endswith(f'did you mean "{meant}"?')


@pytest.mark.parametrize("unit", ["vllm-kimi", "vllm@kimi", "sglang"])
def test_a_unit_without_its_ending(unit: str) -> None:
    error = mistake(f"replaces: [{unit}]")
    assert error.startswith(f'replaces[0]: found "{unit}"; ')
    assert error.endswith(f'did you mean "{unit}.service"?')


@pytest.mark.parametrize("unit", ["a/b", "-x", "vllm.socket/x"])
def test_what_no_ending_makes_a_unit(unit: str) -> None:
    assert "did you mean" not in mistake(f"replaces: ['{unit}']")


def test_a_hub_id_is_no_folder() -> None:
    model = "Qwen/Qwen3-8B"
    for error in (
        mistake("", f"{{path: {model}}}"),
        mistake(f"drafter: {{path: {model}}}"),
    ):
        assert f'path: found "{model}"; ' in error
        assert f"`hf download {model} --local-dir /models/{model}`" in error


@pytest.mark.parametrize("version", ["0.5.8", "0.4.10.post2", "0.5.8.post1", "0.5"])
def test_a_release_that_is_too_old(version: str) -> None:
    error = mistake(f"version: '{version}'")
    assert error == f'version: found "{version}"; allowed: 0.5.9 or newer'


@pytest.mark.parametrize("version", ["0.5.9", "0.5.10rc1", "0.6", "1.0"])
def test_releases_that_are_not(version: str) -> None:
    assert engine_errors(f"version: '{version}'") == []


HASH = "0123456789abcdef0123456789abcdef01234567"


@pytest.mark.parametrize(
    ("model", "found", "meant"),
    [
        ("{path: /m, served_name: -x}", '"-x"', None),
        ("{path: /m/--x}", 'nothing, and the path ends in "--x"', None),
        (f"{{path: /m, served_name: {HASH}}}", f'"{HASH}"', None),
        (f"{{path: /c/models--Qwen--Qwen3-8B/snapshots/{HASH}/}}", HASH, "Qwen3-8B"),
        (f"{{path: /c/snapshots/{HASH}}}", HASH, None),
        ("{path: /m, served_name: 'qwen:8b'}", '"qwen:8b"', None),
    ],
)
def test_a_served_name_that_nobody_could_use(model: str, found: str, meant: str | None) -> None:
    error = mistake("", model)
    assert error.startswith("model.served_name: found ") and found in error
    assert error.endswith(f'did you mean "{meant}"?') is (meant is not None)


def test_a_snapshot_with_a_name() -> None:
    assert engine_errors("", f"{{path: /c/snapshots/{HASH}, served_name: qwen}}") == []


@pytest.mark.parametrize(
    ("name", "keys", "meant"),
    [
        ("root@gpu1", "ssh: {user: root}", "gpu1"),
        ("gpu1:2222", "ssh: {port: 2222}", "gpu1"),
        ("root@gpu1.example.com:22", "ssh: {user: root, port: 22}", "gpu1.example.com"),
        ("@ssh/root@gpu1", "ssh: {user: root}", "gpu1"),
    ],
)
def test_a_host_name_that_is_a_login(name: str, keys: str, meant: str) -> None:
    (error,) = only(load(f"hosts: {{'{name}': {{{MODEL}}}}}")).errors
    assert f'found the host name "{name}"; ' in error and keys in error
    assert error.endswith(f'did you mean "{meant}"?')


@pytest.mark.parametrize("name", ["gpu1", "2001:db8::1", "::1", "@dockerssh/h:n", "@docker/c"])
def test_host_names_that_are_none(name: str) -> None:
    assert only(load(f"hosts: {{'{name}': {{{MODEL}}}}}")).errors == ()


@pytest.mark.parametrize(
    ("content", "line", "found"),
    [
        (b"", 1, "an empty file"),
        (b"# nothing\n", 1, "an empty file"),
        (b"- a\n", 1, "no mapping"),
        (b"hosts:\n  h: [1\n", 3, "what is not YAML"),
        (b"hosts:\n  h: 1\n  h: 2\n", 3, "a duplicate key"),
        (b"hosts:\n  h: \x07\n", 2, "U+0007"),
        (b"hosts:\n  # caf\xe9\n", 2, "not UTF-8"),
        ("hosts: {}\n".encode("utf-16"), 1, "UTF-16"),
        (b"hosts:\n  h: !x 1\n", 2, "what is not YAML"),
        (b"hosts:\n  h: " + b"9" * 40, 2, "a longer number"),
    ],
)
def test_a_file_that_cannot_be_used_is_a_mistake_like_others(
    tmp_path: Path, content: bytes, line: int, found: str
) -> None:
    path = tmp_path / "hosts.yml"
    path.write_bytes(content)
    with pytest.raises(InventoryError) as caught:
        load_inventory(path, {})
    text = str(caught.value)
    assert text.startswith(f"{path}:{line}: ")
    assert found in text.partition(": found ")[2].partition("; allowed: ")[0]


def test_names_with_token_that_are_no_secrets() -> None:
    names = [
        "SGLANG_INIT_NEW_TOKEN_RATIO",
        "SGLANG_MIN_NEW_TOKEN_RATIO_FACTOR",
        "SGLANG_NEW_TOKEN_RATIO_DECAY_STEPS",
        "SGLANG_SIMULATE_ACC_TOKEN_MODE",
        "SGLANG_PREFILL_DELAYER_TOKEN_USAGE_LOW_WATERMARK",
        "SGLANG_SYNC_TOKEN_IDS_ACROSS_TP",
        "SGLANG_USE_AITER_FP8_PER_TOKEN",
        "SGLANG_MINIMAX_VIT_TOKEN_BLOCK",
        "SGLANG_MAX_NEW_TOKENS_LIMIT",
        "SGLANG_KV_CANARY_ENABLE_TOKEN_ORACLE",
        "SGLANG_KV_CANARY_ENABLE_VERIFY_TOKEN_ASSERT",
        "SGLANG_KV_CANARY_PERTURB_NEXT_TOKEN_SWAP_PROB",
        "SGLANG_LOG_DECODE_GRAPH_KEY",
    ]
    spec = engine("environment: {" + ", ".join(f"{name}: 1" for name in names) + "}")
    assert sorted(spec.environment) == sorted(names)


@pytest.mark.parametrize(
    "path",
    ["/models/sk-Qwen3CoderInstruct480B", "/m/hf_abcdefghijklmnopqrstuvwx/y", "/data/sk-learn"],
)
def test_a_path_is_no_secret(path: str) -> None:
    assert engine(f"environment: {{X: {path}}}").environment == {"X": path}


@pytest.mark.parametrize("value", ["sk-abcdefghijklmnop1234567890", "/x?token=abcdefgh12345"])
def test_what_looks_like_a_secret_is_still_one(value: str) -> None:
    error = mistake(f"environment: {{X: '{value}'}}")
    assert error.startswith("environment.X: found ") and "abcdefgh" not in error


def test_a_secret_variable_is_read_on_the_controller_and_protected(tmp_path: Path) -> None:
    (tmp_path / "hf").write_text("hf-secret-1\n")
    body = "environment: {HF_TOKEN: {file: hf}, S3_API_KEY: {env: K}, A: 1}"
    spec = engine(body, folder=tmp_path, K="key-secret-2")
    assert spec.environment == {"A": "1"} and "secret-1" not in repr(spec)
    assert {secret.reveal() for secret in spec.secrets} == {"hf-secret-1", "key-secret-2"}
    release = render(spec, venv="/v")
    holders = [name for name, content in release.files.items() if b"-secret-" in content]
    assert holders == ["engine.env"] and FILES["engine.env"] == 0o640
    lines = release.files["engine.env"].decode().splitlines()
    assert 'HF_TOKEN="hf-secret-1"' in lines and 'S3_API_KEY="key-secret-2"' in lines
    assert "contains no secrets" not in lines[0]
    assert secrets_of_env(release.files["engine.env"], tmp_path) == ["hf-secret-1", "key-secret-2"]


def secrets_of_env(content: bytes, folder: Path) -> list[str]:
    """What the host program masks of a release with this engine.env."""
    (folder / "engine.env").write_bytes(content)
    return secrets_of(folder)


def test_another_secret_variable_is_another_release_whose_name_does_not_tell_it() -> None:
    body = "environment: {HF_TOKEN: {env: K}}"
    one, two = (render(engine(body, K=key), venv="/v").digest for key in ("a" * 9, "b" * 9))
    assert one != two
    assert render(engine(body, K="a" * 9), venv="/v").digest == one


@pytest.mark.parametrize(
    ("given", "found"),
    [
        ("HF_TOKEN: {env: NOT_SET}", "NOT_SET is not set"),
        ("HF_TOKEN: hunter2hunter2", "in clear"),
        ("PLACE: {env: K}", "{file: ...} or {env: ...}"),
        ("HF_TOKEN: {env: K, file: x}", "mapping"),
        ("HF_TOKEN: {}", "mapping"),
        ("HF_TOKEN: {vault: x}", "unknown key"),
        ("PATH: {env: K}", "the variable PATH"),
    ],
)
def test_a_secret_variable_that_cannot_be(given: str, found: str) -> None:
    errors = engine_errors(f"environment: {{{given}}}", K="k" * 9)
    assert errors and all(error.startswith("environment.") for error in errors)
    assert found in errors[0] and "hunter2" not in errors[0]


def test_a_second_engine_of_one_base() -> None:
    entry = only(
        load(
            """
            engines:
              kimi: {model: {path: /m}, port: 8000, environment: {A: 1.0}}
            hosts:
              h:
                engines:
                  kimi: {gpus: [0]}
                  kimi-b: {base: kimi, port: 8001, gpus: [1]}
            """
        )
    )
    assert entry.errors == () and entry.spec is not None
    first, second = entry.spec.engines
    assert (first.name, second.name) == ("kimi", "kimi-b")
    assert (second.port, second.model, second.environment) == (8001, first.model, {"A": "1.0"})


@pytest.mark.parametrize(
    ("base", "engines", "place", "tokens"),
    [
        ("kimmi", "kimi: {}", "3: hosts.h.engines.b.base", ('"kimmi"', 'mean "kimi"')),
        ("kimi", "kimi: {prot: 1}", "1: engines.kimi.prot", ('mean "port"',)),
        ("kimi", "kimi: {base: x}", "1: engines.kimi.base", ("only an engine of a host",)),
    ],
)
def test_a_wrong_base(base: str, engines: str, place: str, tokens: tuple[str, ...]) -> None:
    text = f"engines: {{{engines}}}\nhosts: {{h: {{engines: {{\nb: {{base: {base}, model: {{path: /m}}}}}}}}}}"
    (error,) = only(load(text)).errors
    assert error.startswith(f"hosts.yml:{place}: ") and all(token in error for token in tokens)


@pytest.mark.parametrize("base", ["5", "[kimi]", "''"])
def test_a_base_that_is_no_name(base: str) -> None:
    assert engine_errors(f"base: {base}")[0].startswith("base: found ")


def test_a_base_that_is_used_under_another_name_is_used() -> None:
    text = "engines: {kimi: {model: {path: /m}}}\nhosts: {h: {engines: {b: {base: kimi}}}}"
    assert load(text).errors == () and only(load(text)).errors == ()


def test_mappings_in_a_list_go_where_sglang_reads_them() -> None:
    spec = engine(
        """
        flags:
          lora-paths: [{lora_name: a, lora_path: /x}, b=/y]
          forward-hooks: [{name: h, target: x}]
          sidecar-args: [--a, b]
        """
    )
    files = {name: text.decode() for name, text in render(spec, venv="/v").files.items()}
    assert '--lora-paths "{\\"lora_name\\": \\"a\\", ' in files["sglang.service"]
    assert yaml.safe_load(files["engine.yaml"])["forward-hooks"] == '[{"name": "h", "target": "x"}]'
    assert yaml.safe_load(files["engine.yaml"])["sidecar-args"] == '["--a", "b"]'


def test_mappings_in_any_other_list() -> None:
    error = mistake("flags: {log-requests-target: [{a: 1}]}")
    assert error.startswith("flags.log-requests-target: found a list with mappings; allowed: ")
