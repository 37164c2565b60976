"""Arguments and settings of pip for uv."""

from __future__ import annotations

import pytest

from sglangctl.packages.options import Unknown, for_uv, variables


@pytest.mark.parametrize(
    ("given", "argv", "env"),
    [
        (["--index-url", "https://a"], ["--index-url", "https://a"], {}),
        (["--find-links=/w", "--pre"], ["--find-links=/w", "--prerelease=allow"], {}),
        (["--proxy", "http://p:1", "--no-index"], ["--no-index"], {"ALL_PROXY": "http://p:1"}),
        (["--timeout=9", "--no-compile", "--quiet"], [], {"UV_HTTP_TIMEOUT": "9"}),
        (["--cert", "/ca.pem"], [], {"SSL_CERT_FILE": "/ca.pem"}),
        (["--trusted-host=a", "--trusted-host", "b"], [], {"UV_INSECURE_HOST": "a b"}),
    ],
)
def test_arguments(given: list[str], argv: list[str], env: dict[str, str]) -> None:
    assert for_uv(given) == (argv, env)


@pytest.mark.parametrize("one", ["--platform=any", "--constraint", "--no-binary=x", "--certain=x"])
def test_what_is_not_known_is_pips(one: str) -> None:
    with pytest.raises(Unknown, match=one):
        for_uv(["--no-index", one])


def test_settings() -> None:
    said = {
        "index-url": "https://u:p@a/simple",
        "extra-index-url": "https://b\n  https://c",
        "find-links": "\n/w\n/x",
        "no-index": "false",
        "cert": "/ca.pem",
        "log": "/x",
        "retries": "",
    }
    assert variables(said) == {
        "UV_DEFAULT_INDEX": "https://u:p@a/simple",
        "UV_INDEX": "https://b https://c",
        "UV_FIND_LINKS": "/w,/x",
        "SSL_CERT_FILE": "/ca.pem",
    }
    assert variables({"no-index": "yes"}) == {"UV_NO_INDEX": "1"}
