"""Regular expressions that are compiled at their first use."""

from __future__ import annotations

import importlib
import pkgutil
import re

import pytest

import sglangctl
from sglangctl.util import lazy_re


def test_it_answers_as_the_compiled_one() -> None:
    lazy, plain = lazy_re.compile(r"(\w)(\d+)", re.ASCII), re.compile(r"(\w)(\d+)", re.ASCII)
    for _ in range(2):
        found = lazy.search("xa12")
        assert found is not None and found.groups() == ("a", "12")
        assert lazy.sub("-", "a1 b2") == plain.sub("-", "a1 b2")
        assert [one.span() for one in lazy.finditer("a1 b2")] == [(0, 2), (3, 5)]
    assert (lazy.pattern, lazy.flags, lazy.groups) == (plain.pattern, plain.flags, plain.groups)
    assert lazy_re.compile(rb"a").match(b"ab")


def test_nothing_is_compiled_before_it_is_used() -> None:
    lazy = lazy_re.compile("(")
    with pytest.raises(re.error):
        lazy.match("x")


def test_each_of_the_program_compiles() -> None:
    """Where re.compile would have said so at the import."""
    seen = 0
    for one in pkgutil.walk_packages(sglangctl.__path__, "sglangctl."):
        if not one.name.endswith("__main__"):
            for value in vars(importlib.import_module(one.name)).values():
                if isinstance(value, lazy_re.Lazy):
                    assert value.flags is not None
                    seen += 1
    assert seen > 50
