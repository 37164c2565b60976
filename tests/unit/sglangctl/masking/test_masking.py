import json
import time

import pytest

from sglangctl.masking.addresses import mask_addresses
from sglangctl.masking.masker import Masker, read_engine_yaml, read_env, secrets_of
from sglangctl.masking.names import is_secret_name
from sglangctl.masking.text import mask_argv, secrets_in_argv


@pytest.mark.parametrize("name", ["api-key", "admin-api-key", "HF_TOKEN", "MY_SECRET", "apikey"])
def test_secret_names(name: str) -> None:
    assert is_secret_name(name)


@pytest.mark.parametrize(
    "name",
    ["max-total-tokens", "tokenizer-path", "speculative-num-draft-tokens", "tokenizer-worker-num"],
)
def test_names_with_token_that_hold_no_secret(name: str) -> None:
    assert not is_secret_name(name)


def test_masker_replaces_the_longest_first_and_its_escaped_form() -> None:
    masker = Masker(["sekret", "sekret-long", 'qu"ote', ""])
    assert masker.mask("api_key='sekret-long' sekret") == "api_key='***' ***"
    assert masker.mask('{"k": "qu\\"ote"}') == '{"k": "***"}'


@pytest.mark.parametrize(
    ("text", "masked"),
    [
        ('HTTPS_PROXY="http://u:pw@proxy:3128"', 'HTTPS_PROXY="http://***@proxy:3128"'),
        ("a redis://:pw@h b git+https://u:pw@h/x", "a redis://***@h b git+https://***@h/x"),
        ("HTTP://u:@h", "HTTP://***@h"),
        ("http://h:80/a@b", "http://h:80/a@b"),
        ("ssh://git@h/x", "ssh://git@h/x"),
    ],
)
def test_addresses_without_their_passwords(text: str, masked: str) -> None:
    assert mask_addresses(text) == masked
    assert mask_argv(["curl", text]) == ["curl", masked]


@pytest.mark.parametrize(
    ("argv", "shown", "secrets"),
    [
        (
            ["vllm", "--api-key", "S1", "--port", "1"],
            ["vllm", "--api-key", "***", "--port", "1"],
            ["S1"],
        ),
        (["vllm", "--api-key=S1", "/m"], ["vllm", "--api-key=***", "/m"], ["S1"]),
        (["env", "HF_TOKEN=S1", "x"], ["env", "HF_TOKEN=***", "x"], ["S1"]),
        (["vllm", "-api-key", "S1", "-x"], ["vllm", "-api-key", "***", "-x"], ["S1"]),
        (
            ["vllm", "--api-key", "S1", "second-one", "/models/m", "--port", "1"],
            ["vllm", "--api-key", "***", "***", "***", "--port", "1"],
            ["S1", "second-one"],
        ),
        (
            ["x", "--api-key", "--S1", "--port", "1"],
            ["x", "--api-key", "***", "--port", "1"],
            ["--S1"],
        ),
        (
            ["sh", "-c", "exec vllm serve /m --api-key S1 --port 1"],
            ["sh", "-c", "exec vllm serve /m --api-key *** --port 1"],
            ["S1"],
        ),
        (
            ["curl", "-H", "Authorization: Bearer S1", "http://h/v1"],
            ["curl", "-H", "Authorization: Bearer ***", "http://h/v1"],
            ["S1"],
        ),
        (["vllm serve /m --api-key S1 --port 1"], ["vllm serve /m --api-key *** --port 1"], ["S1"]),
        (["curl", "-u", "me:S1", "http://h"], ["curl", "-u", "***", "http://h"], ["me:S1"]),
        (["sudo", "-u", "me:grp", "x"], ["sudo", "-u", "me:grp", "x"], []),
        (
            [
                "python3",
                "-m",
                "x",
                "--model-path",
                "/m",
                "--tokenizer-path",
                "/t",
                "--max-total-tokens",
                "5",
            ],
            [
                "python3",
                "-m",
                "x",
                "--model-path",
                "/m",
                "--tokenizer-path",
                "/t",
                "--max-total-tokens",
                "5",
            ],
            [],
        ),
        (
            ["x", "--json-model-override-args", '{"a": 1}'],
            ["x", "--json-model-override-args", '{"a": 1}'],
            [],
        ),
    ],
)
def test_command_lines(argv: list[str], shown: list[str], secrets: list[str]) -> None:
    assert mask_argv(argv) == shown
    assert secrets_in_argv(argv) == secrets


def test_a_long_text_without_an_address_is_looked_through_quickly() -> None:
    before = time.process_time()
    assert mask_addresses("a" * 200_000) == "a" * 200_000
    assert time.process_time() - before < 2


def test_secrets_of_a_release(tmp_path):  # type: ignore[no-untyped-def]
    (tmp_path / "engine.yaml").write_text('# head\nport: 30000\napi-key: "k\\u00e9y-1"\n')
    (tmp_path / "engine.env").write_text('HF_TOKEN="a\\"b\\$c"\nMAX_JOBS="4"\n')
    assert read_engine_yaml(tmp_path / "engine.yaml") == {"port": 30000, "api-key": "kéy-1"}
    assert read_env(tmp_path / "engine.env")["HF_TOKEN"] == 'a"b$c'
    assert secrets_of(tmp_path) == ["kéy-1", 'a"b$c']


@pytest.mark.parametrize(
    "secret", ["s3cr$t%h\"'#\\xy", "it's-a-key", 'with"quote', "back\\slash", "kéy-ü-1", "plainkey"]
)
def test_a_secret_is_masked_as_python_and_json_write_it(secret: str) -> None:
    masker = Masker([secret])
    for text in (
        secret,
        repr(secret),
        repr({"api_key": secret, "other": "'"}),
        json.dumps({"k": secret}),
        json.dumps({"k": secret}, ensure_ascii=False),
        repr(f"--api-key={secret} 'x'"),
        repr(f'--api-key={secret} "x"'),
    ):
        masked = masker.mask(text)
        assert "***" in masked
        for form in (secret, repr(secret)[1:-1], json.dumps(secret)[1:-1]):
            assert form not in masked, masked
