"""Secrets are read on the controller and shown nowhere."""

from __future__ import annotations

import copy
import json
import os
import socket
import time
from dataclasses import asdict
from pathlib import Path

import pytest

from roles.entry.hosts import host_data
from roles.inventory import Secret, credentials, flags, render
from roles.inventory.flag_names import FLAGS
from roles.inventory.render import engine_json
from sglangctl.masking.masker import secrets_of
from sglangctl.masking.scrub import scrub
from sglangctl.state.files import masked_text
from tests.support.inventory_case import engine, engine_errors, engine_text, load, only

KEY = "sk-planted-0123456789"


def test_a_secret_does_not_show_itself() -> None:
    secret = Secret(KEY)
    for text in (repr(secret), str(secret), f"{secret}", f"{secret:>30}", "%s" % secret):  # noqa: UP031
        assert KEY not in text
    assert KEY not in repr({"a": [secret]})
    with pytest.raises(TypeError):
        json.dumps(secret)
    assert copy.deepcopy(secret) == secret
    assert secret.reveal() == KEY
    assert secret != Secret("other") and secret != KEY


def test_from_the_environment_and_from_a_file(tmp_path: Path) -> None:
    (tmp_path / "key").write_text(KEY + "\n")
    for body in ("api_key: {env: K}", "api_key: {file: key}", f"api_key: {{file: {tmp_path}/key}}"):
        spec = engine(body, tmp_path, K=KEY)
        assert spec.api_key == Secret(KEY)
        assert spec.secrets == (Secret(KEY),)


def test_it_is_in_the_config_file_and_nowhere_else(tmp_path: Path) -> None:
    entry = only(load(engine_text("api_key: {env: K}"), K=KEY))
    spec = entry.spec.engines[0]
    release = render.render(spec, venv="/v")
    assert [name for name, content in release.files.items() if KEY.encode() in content] == [
        "engine.yaml"
    ]
    masked = masked_text(release.files["engine.yaml"])
    assert masked is not None and "api-key: " in masked and KEY not in masked
    for text in (
        repr(entry),
        repr(release),
        str(host_data(entry)),
        repr(asdict(spec)),
        engine_json(spec).decode(),
    ):
        assert KEY not in text
    for name, content in release.files.items():
        (tmp_path / name).write_bytes(content)
    assert secrets_of(tmp_path) == [KEY]


def test_another_key_is_another_release() -> None:
    digests = [
        render.render(engine("api_key: {env: K}", K=key), venv="/v").digest
        for key in (KEY, KEY, KEY + "x")
    ]
    assert digests[0] == digests[1] != digests[2]


def test_a_key_cannot_be_guessed_quickly_from_the_digest(monkeypatch: pytest.MonkeyPatch) -> None:
    # Nothing of the key but scrypt's result is hashed: without it all keys give one digest.
    monkeypatch.setattr(render, "_slow_hash", lambda engine, name, secret: "")
    digests = {
        render.render(engine("api_key: {env: K}", K=key), venv="/v").digest
        for key in (KEY, KEY + "x", "entirely-different")
    }
    assert len(digests) == 1


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ("", "holds 0 characters; at least 8"),
        ("short", "holds 5 characters; at least 8"),
        ("two words here", "one line of printable ASCII"),
        ("line-one-line\nline-two-line", "one line of printable ASCII"),
        ("schlüssel-schlüssel", "one line of printable ASCII"),
        ("--api-key-like", "begins with -"),
        ("control\x1b[31mcode", "one line of printable ASCII"),
    ],
)
def test_a_secret_that_cannot_be_used(tmp_path: Path, content: str, said: str) -> None:
    (tmp_path / "key").write_text(content)
    for body in ("api_key: {file: key}", "api_key: {env: K}"):
        (error,) = engine_errors(body, folder=tmp_path, K=content)
        assert error.startswith("api_key: found ")
        assert said in error
        assert not content or content not in error


def test_a_secret_that_is_not_there(tmp_path: Path) -> None:
    (error,) = engine_errors("api_key: {env: NOT_SET}")
    assert "environment variable NOT_SET is not set on the controller" in error
    (error,) = engine_errors("api_key: {file: gone}", folder=tmp_path)
    assert f'file "{tmp_path}/gone" does not exist' in error
    (error,) = engine_errors('api_key: {file: "/a\\e[31m"}')
    assert "\\u001b[31m" in error and "\x1b" not in error
    (error,) = engine_errors("api_key: {file: .}", folder=tmp_path)
    assert "cannot be read: Is a directory" in error


def test_a_secret_of_a_user_that_is_not_there_hits_its_host_alone() -> None:
    inventory = load(
        """
        hosts:
          bad: {engines: {e: {model: {path: /m}, api_key: {file: ~nosuchuser/key}}}}
          good: {engines: {e: {model: {path: /m}}}}
        """
    )
    bad, good = inventory.hosts
    assert good.errors == ()
    (error,) = bad.errors
    assert "hosts.bad.engines.e.api_key: found file " in error
    assert "~nosuchuser/key" in error and "the home folder of a user that does not exist" in error


@pytest.mark.timeout(20)
@pytest.mark.parametrize("kind", ["fifo", "device", "socket", "large"])
def test_only_a_small_regular_file_is_read_for_a_secret(tmp_path: Path, kind: str) -> None:
    path = tmp_path / "key"
    expected = "is a pipe, a socket or a device, not a regular file"
    if kind == "fifo":
        os.mkfifo(path)
    elif kind == "device":
        path.symlink_to("/dev/zero")
    elif kind == "socket":
        with socket.socket(socket.AF_UNIX) as server:
            server.bind(str(path))
    else:
        path.write_bytes(b"k" * (64 * 1024 + 1))
        expected = "is larger than 64 KiB"
    (error,) = engine_errors("api_key: {file: key}", folder=tmp_path)
    assert error.startswith("api_key: found file ") and expected in error


@pytest.mark.timeout(20)
def test_a_patch_is_not_waited_for_either(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "x.patch")
    (error,) = engine_errors(
        f"kernel: {{patches: [x.patch], git: {{commit: {'a' * 40}}}}}", folder=tmp_path
    )
    assert error.startswith("kernel.patches[0]: found ") and "not a regular file" in error


@pytest.mark.parametrize("kind", ["file", "env"])
@pytest.mark.parametrize(
    ("name", "full"),
    [
        ("admin-api-ke", "admin-api-key"),
        ("admi", "admin-api-key"),
        ("ssl-keyfile-passw", "ssl-keyfile-password"),
        ("ssl-keyfile-", "ssl-keyfile-password"),
    ],
)
def test_a_short_form_of_a_secret_flag_is_refused(name: str, full: str, kind: str) -> None:
    for version, value in (("0.5.16", KEY), ("0.5.23", KEY), ("0.5.16", f"{{{kind}: K}}")):
        (error,) = engine_errors(f"version: {version}\nflags: {{{name}: {value}}}", K=KEY)
        assert error.startswith(f"flags.{name}: found the flag --{name}, short for --{full}")
        assert error.endswith(f'did you mean "{full}"?')
        assert KEY not in error


def test_the_certificate_s_key_file_is_no_secret() -> None:
    assert engine("version: 0.5.16\nflags: {ssl-keyfile: /k.pem}").flags["ssl-keyfile"] == "/k.pem"


def test_what_is_masked_in_texts_is_a_secret_among_flags() -> None:
    (error,) = engine_errors(f"version: 0.5.16\nflags: {{hf-token: {KEY}}}")
    assert "a value in clear (it is not shown)" in error and KEY not in error
    assert {name for name in FLAGS if flags.is_secret(name)} == set(flags.KNOWN_SECRETS)


PASSWORDS = [
    "environment: {HTTPS_PROXY: 'http://u:hunter2@proxy'}",
    "environment: {https_proxy: 'u:hunter2@proxy:3128'}",
    "environment: {SOME_URL: 'https://hunter2@h/x'}",
    "environment: {SOME_URL: 'https://h/x?api_key=hunter2'}",
    "install: {pip_arguments: ['--proxy=u:hunter2@proxy:3128']}",
    "install: {pip_arguments: [--proxy, 'u:hunter2@proxy:3128']}",
    "install: {pip_arguments: ['--index-url=https://u:hunter2@h/']}",
    "install: {pip_arguments: ['--index-url=https://hunter2@h/']}",
    "install: {packages: ['x @ https://u:hunter2@h/x.whl']}",
    f"install: {{packages: ['x @ git+https://hunter2@h/x.git@{'a' * 40}']}}",
    "kernel: {git: {url: 'https://u:hunter2@h/x.git'}}",
    "kernel: {cmake_args: ['-DX=https://u:hunter2@h/x']}",
    "flags: {chat-template: 'https://u:hunter2@h/x'}",
    "port: 'http://u:hunter2@h'",
    "flags: {json-model-override-args: {a: ['redis://:hunter2@h']}}",
]


@pytest.mark.parametrize(
    "value", ["hf_hunter2hunter2hunter2", "Bearer hunter2hunter2", "--api-key hunter2"]
)
def test_a_secret_is_known_by_its_shape_in_a_variable_too(value: str) -> None:
    (error,) = engine_errors(f"environment: {{SOME_THING: '{value}'}}")
    assert error.startswith("environment.SOME_THING: found a value that looks like a secret")
    assert "hunter2" not in error


@pytest.mark.parametrize("body", PASSWORDS)
def test_a_password_in_an_address_is_refused_and_not_shown(body: str) -> None:
    errors = engine_errors(body)
    assert errors
    assert not any("hunter2" in error for error in errors)
    if "port" not in body:
        assert errors[0].split(": ", 1)[1].startswith("found an address with credentials")
        assert "allowed: an address without a password" in errors[0]


def test_addresses_without_a_password_pass() -> None:
    spec = engine(
        """
        environment: {HTTPS_PROXY: 'http://proxy:3128', IMAGE: 'repo:tag@sha256:0', A: a@b}
        install:
          pip_arguments: ['--proxy=proxy:3128', '--index-url=https://h:8443/simple']
          packages: ['x @ git+ssh://git@h/x.git@aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa']
        kernel: {git: {url: 'git@h:x.git'}}
        """
    )
    assert spec.environment["HTTPS_PROXY"] == "http://proxy:3128"


@pytest.mark.parametrize("value", [KEY, f"[{KEY}]", f"{{value: {KEY}}}", f"{{file: [{KEY}]}}"])
def test_a_key_in_clear_is_refused_and_not_shown(value: str) -> None:
    errors = engine_errors(f"api_key: {value}")
    assert errors
    assert not any(KEY in error for error in errors)


@pytest.mark.parametrize(
    "body",
    [
        f"flags: {{admin-api-key: [[{KEY}]]}}",
        f'flags: {{admin-api-key: "{KEY}\\0"}}',
        f"environment: {{HF_TOKEN: [{KEY}]}}",
        f'environment: {{HF_TOKEN: "{KEY}\\n"}}',
    ],
)
def test_a_key_in_clear_of_the_wrong_kind_is_not_shown_either(body: str) -> None:
    errors = engine_errors(body)
    assert errors
    assert not any(KEY in error for error in errors)


def test_both_a_file_and_a_variable_are_refused() -> None:
    (error,) = engine_errors("api_key: {file: a, env: B}")
    assert "a mapping with exactly one of file, env" in error


def test_a_variable_for_a_secret_is_refused_and_not_shown() -> None:
    (error,) = engine_errors(f"environment: {{HF_TOKEN: {KEY}}}")
    assert error.startswith("environment.HF_TOKEN: found a secret in clear (it is not shown)")
    assert KEY not in error


@pytest.mark.parametrize(
    "piece", ["-", "=a:", "a:", "://", "://a:", "?a", "&", "https://", "apikey"]
)
def test_a_value_is_looked_at_in_time_in_proportion_to_its_length(piece: str) -> None:
    text = piece * (60_000 // len(piece))
    began = time.process_time()
    assert not credentials.in_argument(text) and not credentials.in_variable("http_proxy", text)
    assert scrub(text) == text
    assert time.process_time() - began < 1


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("user:pw@proxy:3128", True),
        ("http=user:pw@proxy", True),
        ("a b=c:pw@proxy", True),
        ("a user:pw@proxy", False),
        ("proxy:3128", False),
        ("user@proxy:3128", False),
        ("https://TOKEN@h", True),
        ("ssh://git@h", False),
        ("https://u:p:w@h", True),
        ("https://h/?a=b&api_key=x", True),
        ("https://h/?max_tokens=5", False),
    ],
)
def test_credentials_in_an_argument(text: str, found: bool) -> None:
    assert credentials.in_argument(text) is found
