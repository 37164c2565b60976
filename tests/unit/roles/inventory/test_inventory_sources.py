"""install.index, find_links and pip_arguments: each command gets what it understands."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from roles.inventory import render
from roles.inventory.locking import options
from sglangctl.packages.options import INSTALL_ALONE, INSTALL_VALUED, for_download
from tests.support.inventory_case import engine, engine_errors

BODY = """\
install:
  index: [https://a.example/simple, https://b.example/simple]
  find_links: [/srv/wheels]
  pip_arguments: [--no-deps]
"""


def test_they_become_arguments_of_pip_and_of_uv() -> None:
    install = engine(BODY).install
    sources = (
        "--index-url=https://a.example/simple",
        "--extra-index-url=https://b.example/simple",
        "--find-links=/srv/wheels",
    )
    assert install.arguments == (*sources, "--no-deps")
    assert options(engine(BODY.replace("--no-deps", "")).install) == list(sources)


def test_another_index_is_another_environment() -> None:
    digests = [
        render.venv_digest(engine(body))
        for body in (
            "",
            "install: {index: []}",
            BODY,
            BODY.replace(", https://b.example/simple", ""),
        )
    ]
    assert digests[0] == digests[1] and len({*digests}) == 3


@pytest.mark.parametrize(
    "given",
    ["index: [https://u:p@a.example/x]", "find_links: ['https://u:p@a.example/x']"],
)
def test_a_password_is_refused_and_not_shown(given: str) -> None:
    (told,) = engine_errors(f"install: {{{given}}}")
    assert "credentials" in told and "u:p" not in told


@pytest.mark.parametrize("given", ["index: [a.example]", "find_links: [wheels]"])
def test_what_is_no_address(given: str) -> None:
    assert engine_errors(f"install: {{{given}}}")


@pytest.mark.slow
def test_what_pip_install_alone_understands_is_not_given_to_pip_download(tmp_path: Path) -> None:
    """pip itself is asked: each option that is left out is none of download's, the others are."""
    valued = [word for name in sorted(INSTALL_VALUED) for word in (name, "x")]
    given = [*sorted(INSTALL_ALONE), *valued, "--root=/x", "--no-deps", "--find-links", "/w"]
    assert for_download(given) == ("--no-deps", "--find-links", "/w")
    for name in ("--target", "--upgrade", "--root-user-action", "--no-warn-conflicts", "-U"):
        argv = [sys.executable, "-m", "pip", "download", name]
        done = subprocess.run(argv, capture_output=True, text=True)
        assert "no such option" in done.stderr, name
