"""Flags and variables that SGLang would refuse or ignore after minutes: told at load."""

from __future__ import annotations

import zipfile
from pathlib import Path

import pytest

from docs import engine_names
from roles.inventory import contradictions, flag_checks, flag_names, one_host, variable_names
from tests.support.inventory_case import engine_errors, engine_text, load, only


def mistake(body: str) -> str:
    (error,) = engine_errors(body)
    return error


def warnings(body: str) -> list[str]:
    entry = only(load(engine_text(body)))
    assert entry.errors == () and entry.spec is not None
    return [line.split(": ", 1)[1].removeprefix("hosts.h.engines.e.") for line in entry.warnings]


@pytest.mark.parametrize("flag", sorted(flag_names.OFF_FORMS))
def test_all_no_flags_have_a_positive_name(flag: str) -> None:
    error = mistake(f"flags: {{no-{flag}: true}}")
    assert error.startswith(f"flags.no-{flag}: found the flag --no-{flag}; ")
    assert error.endswith(f'did you mean "{flag}: false"?')


def test_there_are_twelve_of_them_and_a_switch_without_one_is_left_out() -> None:
    assert len(flag_names.OFF_FORMS) == 12
    assert mistake("flags: {no-trust-remote-code: true}").endswith('"trust-remote-code: false"?')


def test_a_no_flag_that_never_was_means_the_one_that_switches_off() -> None:
    assert mistake("flags: {no-cuda-graph: true}").endswith('did you mean "disable-cuda-graph"?')


@pytest.mark.parametrize("flag", sorted(flag_checks.RENAMED))
def test_a_flag_that_is_gone_names_its_replacement(flag: str) -> None:
    new = flag_checks.RENAMED[flag]
    assert new.partition(":")[0] in flag_names.FLAGS and flag in flag_names.GONE
    error = mistake(f"flags: {{{flag}: 1}}")
    assert f"--{flag}, which SGLang 0.5.23 no longer has" in error
    assert error.endswith(f'did you mean "{new}"?')


@pytest.mark.parametrize("flag", sorted(flag_names.GONE - set(flag_checks.RENAMED)))
def test_a_flag_that_is_gone_for_good(flag: str) -> None:
    assert "no longer has; allowed: nothing: it has no replacement" in mistake(
        f"flags: {{{flag}: 1}}"
    )


def test_another_release_has_other_flags() -> None:
    assert engine_errors("version: 0.5.16\nflags: {cuda-graph-max-bs: 8, wobble: 1}") == []
    pin = "install: {packages: ['sglang @ file:///w.whl']}"
    assert engine_errors(f"{pin}\nflags: {{wobble: 1}}") == []


@pytest.mark.parametrize(
    ("given", "found", "allowed", "meant"),
    [
        ("trust-remote-code: yes", '"yes"', "true or false", "true"),
        ("trust-remote-code: 0", "0", "true or false", "false"),
        ("enable-tf32-matmul: off", '"off"', "true or false", "false"),
        ("context-length: 1e5", "100000.0", "a whole number", "100000"),
        ("context-length: 32kb", '"32kb"', "a whole number", None),
        ("max-running-requests: 1.5", "1.5", "a whole number", None),
        ("max-running-requests: true", "true", "a whole number", None),
        ("mem-fraction-static: high", '"high"', "a number", None),
        ("mem-fraction-static: [0.5]", "a list", "a single value", None),
        ("attention-backend: flashinfr", '"flashinfr"', "triton, ", "flashinfer"),
        ("attention-backend: true", "true", "a value", None),
        ("kv-cache-dtype: fp8", '"fp8"', "fp8_e4m3", None),
        ("max-running-requests: {a: 1}", "a mapping", "a whole number", None),
    ],
)
def test_a_value_that_the_parser_would_refuse(
    given: str, found: str, allowed: str, meant: str | None
) -> None:
    error = mistake(f"flags: {{{given}}}")
    assert error.startswith(f"flags.{given.split(':')[0]}: found {found}; allowed: ")
    assert allowed in error
    assert error.endswith(f'did you mean "{meant}"?') is (meant is not None)


@pytest.mark.parametrize(
    "given",
    [
        "context-length: 32k",
        "context-length: 128Ki",
        "context-length: '4096'",
        "max-total-tokens: 8192",
        "mem-fraction-static: 1",
        "mem-fraction-static: 8.5e-1",
        "schedule-conservativeness: 0.3",
        "cuda-graph-bs-decode: [1, 2]",
        "cuda-graph-bs-decode: 1",
        "json-model-override-args: {a: 1}",
        "json-model-override-args: '{}'",
        "default-chat-template-kwargs: {enable_thinking: false}",
        "chunked-prefill-size: -1",
        "disable-radix-cache: false",
        "trust-remote-code: null",
        "enable-tf32-matmul: false",
        "log-level: warning",
    ],
)
def test_values_that_it_takes(given: str) -> None:
    assert engine_errors(f"flags: {{{given}}}") == []


def test_a_package_may_add_choices() -> None:
    body = "install: {packages: [my-plugin==1]}\nflags: {attention-backend: %s}"
    assert engine_errors(body % "mine") == []
    assert engine_errors(body % "flashinfr") != []


@pytest.mark.parametrize(
    ("given", "token"),
    [
        ("nnodes: 2", "several hosts"),
        ("nnodes: '2'", "several hosts"),
        ("node-rank: 1", "several hosts"),
        ("dist-init-addr: '10.0.0.1:5000'", "several hosts"),
        ("disaggregation-mode: prefill", "prefill and decode"),
        ("smg-grpc-mode: true", "HTTP"),
    ],
)
def test_what_one_host_cannot_be(given: str, token: str) -> None:
    error = mistake(f"flags: {{{given}}}")
    assert error.startswith(f"flags.{given.split(':')[0]}: found ") and token in error


@pytest.mark.parametrize(
    "given", ["nnodes: 1", "node-rank: 0", "disaggregation-mode: 'null'", "smg-grpc-mode: false"]
)
def test_what_one_host_is(given: str) -> None:
    assert engine_errors(f"flags: {{{given}}}") == []
    assert given.split(":")[0] in one_host.ALONE


@pytest.mark.parametrize(
    ("flags", "needed", "product"),
    [
        ("pp-size: 2", 4, "tensor_parallel 2 x pipeline parallel 2"),
        ("data-parallel-size: 2, pipeline-parallel-size: 2", 8, "x data parallel 2"),
        ("dp-size: '3'", 6, "data parallel 3"),
    ],
)
def test_gpus_for_all_copies_and_stages(flags: str, needed: int, product: str) -> None:
    error = mistake(f"tensor_parallel: 2\ngpus: [0, 1, 2]\nflags: {{{flags}}}")
    assert (
        error.startswith(f"gpus: found 3 GPUs; allowed: at least {needed}: ") and product in error
    )
    cards = list(range(needed))
    assert engine_errors(f"tensor_parallel: 2\ngpus: {cards}\nflags: {{{flags}}}") == []


def test_gpus_of_dp_attention_are_those_of_tensor_parallel() -> None:
    for flags in (
        "dp-size: 2, enable-dp-attention: true",
        "attn-dp-size: 2",
        "device: cpu, dp-size: 4",
    ):
        assert engine_errors(f"tensor_parallel: 2\ngpus: [0, 1]\nflags: {{{flags}}}") == []


DRAFTER = "drafter: {path: /d, steps: 3, topk: 4, draft_tokens: 8}\n"
CRASHES = [
    ("flags: {lora-paths: {a: /x}}", "flags.lora-paths", "a list: [NAME=PATH"),
    (DRAFTER + "flags: {attention-backend: trtllm_mha}", "flags.attention-backend", "topk"),
    (
        DRAFTER + "flags: {attention-backend: fa4, page-size: 16}",
        "flags.page-size",
        "page-size: 1",
    ),
    ("drafter: {path: /d}\nflags: {pp-size: 2}", "flags.pp-size", "drafter"),
    ("flags: {attn-dp-size: 2, dp-size: 2}", "flags.attn-dp-size", "attn-dp-size alone"),
    (
        "drafter: {path: /d}\nflags: {weight-cache-mode: client}",
        "flags.weight-cache-mode",
        "drafter",
    ),
    (
        "flags: {disable-cuda-graph-padding: true, enable-torch-compile: true}",
        "flags.disable-cuda-graph-padding",
        "enable-torch-compile",
    ),
    ("flags: {grpc-port: 9, admin-api-key: {env: K}}", "flags.grpc-port", "api key"),
    (
        "flags: {chunked-prefill-size: 1000, page-size: 64}",
        "flags.chunked-prefill-size",
        "multiple",
    ),
]


@pytest.mark.parametrize(("body", "key", "token"), CRASHES)
def test_contradictions(body: str, key: str, token: str) -> None:
    (error,) = engine_errors(body, K="k" * 9)
    assert error.startswith(f"{key}: found ") and token in error


SM120 = [
    ("flags: {attention-backend: trtllm_mha, kv-cache-dtype: fp8_e4m3}", "kv-cache-dtype"),
    ("flags: {prefill-attention-backend: fa3}", "attention-backend"),
    ("flags: {dsa-decode-backend: trtllm}", "dsa-prefill-backend"),
]


@pytest.mark.parametrize(("body", "key"), SM120)
def test_contradictions_of_an_architecture(body: str, key: str) -> None:
    """A mistake where `kernel.arch` says it, nothing where it says another, else a warning."""
    (warning,) = warnings(body)
    assert warning.startswith(f"flags.{key}: found ") and "SM120" in warning
    assert mistake(f"{body}\nkernel: {{arch: 120a}}") == warning
    assert warnings(f"{body}\nkernel: {{arch: '9.0'}}") == []


@pytest.mark.parametrize(
    ("body", "token"),
    [
        ("flags: {max-total-tokens: 1}", "no request"),
        ("flags: {moe-runner-backend: flashinfer_trtllm}", "corrupt"),
        ("flags: {disable-cuda-graph: true}", "cuda-graph-backend-decode: disabled"),
        ("flags: {num-continuous-decode-steps: 4}", "no code"),
    ],
)
def test_what_may_be_wrong_is_a_warning(body: str, token: str) -> None:
    (warning,) = warnings(body)
    assert token in warning


def test_every_rule_has_a_test_and_a_source() -> None:
    told = {key.removeprefix("flags.") for _, key, _ in CRASHES} | {key for _, key in SM120}
    told |= {"max-total-tokens", "moe-runner-backend"}
    assert {rule.flag for rule in contradictions.RULES} == told
    assert all(rule.source for rule in contradictions.RULES)


@pytest.mark.parametrize(
    ("name", "meant"),
    [
        ("SGLANG_ENABLE_PCIE_IPC_ALREDUCE", "SGLANG_ENABLE_PCIE_IPC_ALLREDUCE"),
        ("SGLANG_WOBBLE_AND_MORE", None),
        ("SGL_HOST_IPP", "SGLANG_HOST_IP"),
    ],
)
def test_a_variable_that_sglang_does_not_read_is_a_warning(name: str, meant: str | None) -> None:
    (warning,) = warnings(f"environment: {{{name}: 1}}")
    assert warning.startswith(f"environment.{name}: found the variable {name}, which SGLang 0.5.23")
    assert ("did you mean" in warning) is (meant is not None)
    assert meant is None or warning.endswith(f'did you mean "{meant}"?')


@pytest.mark.parametrize(
    "name",
    ["SGLANG_HOST_IP", "SGL_HOST_IP", "SGLANG_DIFFUSION_ANYTHING", "MY_SGLANG_X", "HF_HOME2"],
)
def test_variables_that_it_reads(name: str) -> None:
    assert warnings(f"environment: {{{name}: 1}}") == []


def test_a_variable_of_an_older_release_only() -> None:
    name = sorted(variable_names.GONE)[0]
    body = f"environment: {{SGLANG_{name}: 1}}"
    assert "no longer reads" in warnings(body)[0]
    assert warnings(f"version: 0.5.16\n{body}") == []


FIELDS = """
KV = ["auto", "fp8"]
class Serving:
    trust_remote_code: A[bool, "x"] = False
    enable_tf32_matmul: A[Optional[bool], Arg(help="", action=argparse.BooleanOptionalAction)] = None
    tp_size: A[int, Arg(help="", cli_name="--tensor-parallel-size", aliases=["--tp-size"])] = 1
    context_length: A[Optional[int], Arg(help="", type_parser=human_readable_int)] = None
    fraction: A[float, "x"] = 1.0
    gc_threshold: A[Optional[List[int]], "x"] = None
    hooks: A[Optional[List[dict[str, Any]]], Arg(help="", type_parser=json_list_type)] = None
    kv_cache_dtype: A[str, Arg(help="", choices=KV)] = "auto"
    mode: A[Literal["off", "on"], "x"] = "off"
    hidden: A[str, Arg(help="", no_cli=True)] = ""
    derived: int = 0
"""
PARSER = "parser.add_argument('--old-switch', action=DeprecatedStoreTrueAction)\n"
ENVIRON = "class Envs:\n    SGLANG_A = EnvBool(True)\n    OTHER = EnvStr('')\n"


def wheel(folder: Path, version: str, files: dict[str, str]) -> Path:
    path = folder / f"sglang-{version}-py3-none-any.whl"
    with zipfile.ZipFile(path, "w") as archive:
        for name, text in files.items():
            archive.writestr(f"sglang/{name}", text)
    return path


def test_the_names_are_read_from_a_wheel(tmp_path: Path) -> None:
    files = {
        "srt/arg_groups/fields/serving.py": FIELDS,
        "srt/server_args.py": PARSER,
        "srt/environ.py": ENVIRON,
        "srt/x.py": "os.environ['SGLANG_B']",
        "multimodal_gen/y.py": "os.environ['SGLANG_C']",
    }
    found = engine_names.names_of(wheel(tmp_path, "9.1", files))
    assert found.kinds == {
        "trust-remote-code": "SWITCHES",
        "enable-tf32-matmul": "OFF_FORMS",
        "tensor-parallel-size": "WHOLE",
        "tp-size": "WHOLE",
        "context-length": "SIZES",
        "fraction": "NUMBERS",
        "gc-threshold": "LISTS",
        "hooks": "JSON",
        "kv-cache-dtype": "TEXTS",
        "mode": "TEXTS",
        "old-switch": "SWITCHES",
    }
    assert found.choices == {"kv-cache-dtype": ("auto", "fp8"), "mode": ("off", "on")}
    assert (found.version, found.variables) == ("9.1", {"A", "B"})
    older = engine_names.names_of(
        wheel(tmp_path, "9.0", {"srt/server_args.py": "p.add_argument('--gone')"})
    )
    space: dict[str, object] = {}
    exec(engine_names.flag_module([found, older]), space)
    assert space["GONE"] == {"gone"} and "no-enable-tf32-matmul" in space["FLAGS"]
    assert space["CHOICES"] == found.choices


def test_a_wheel_without_flags_is_none(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="no flags"):
        engine_names.names_of(wheel(tmp_path, "1.0", {"x.py": ""}))
