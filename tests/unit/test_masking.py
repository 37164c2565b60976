import pytest

from sglangctl.masking import Masker, is_secret_name, read_engine_yaml, read_env, secrets_of


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


def test_secrets_of_a_release(tmp_path):  # type: ignore[no-untyped-def]
    (tmp_path / "engine.yaml").write_text('# head\nport: 30000\napi-key: "k\\u00e9y-1"\n')
    (tmp_path / "engine.env").write_text('HF_TOKEN="a\\"b\\$c"\nMAX_JOBS="4"\n')
    assert read_engine_yaml(tmp_path / "engine.yaml") == {"port": 30000, "api-key": "kéy-1"}
    assert read_env(tmp_path / "engine.env")["HF_TOKEN"] == 'a"b$c'
    assert secrets_of(tmp_path) == ["kéy-1", 'a"b$c']
