"""What a host gets is rendered once: before it is connected to, and used by its stages."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from dataclasses import replace

import pytest

from roles.inventory.model import HostSpec
from roles.stages import desired
from tests.support.inventory_case import engine_text, load, only


@pytest.fixture(autouse=True)
def nothing_made() -> Iterator[None]:
    desired.MADE.clear()
    yield
    desired.MADE.clear()


def spec_of(body: str = "") -> HostSpec:
    spec = only(load(engine_text(f"port: 8000\n{body}"))).spec
    assert spec is not None
    return spec


def test_it_is_taken_once_and_with_the_rights_of_the_run() -> None:
    spec = spec_of()
    desired.make_early(spec)
    # pyinfra's data of a host are copies.
    found = desired.made_early(copy.copy(spec), sudo=True)
    assert found == desired.make(spec, sudo=True)
    assert desired.made_early(spec, sudo=True) is None


def test_what_was_made_of_another_spec_is_not_taken() -> None:
    desired.make_early(spec_of())
    assert desired.made_early(spec_of("restart: never\n"), sudo=False) is None
    desired.make_early(spec_of())
    assert desired.made_early(replace(spec_of(), name="another"), sudo=False) is None
