"""A login's umask does not decide who can read what is made; a unit's does."""

from __future__ import annotations

import os

import pytest

from sglangctl import cli


@pytest.mark.parametrize(
    ("words", "left"),
    [(["replay", "/nowhere"], 0o022), (["wait", "nobody"], 0o077), (["--version"], 0o077)],
)
def test_commands_that_people_and_deploys_run(
    words: list[str], left: int, capsys: pytest.CaptureFixture[str]
) -> None:
    before = os.umask(0o077)
    try:
        cli.main(words)
        assert os.umask(0o022) == left
    finally:
        os.umask(before)
