"""A venv of many pins is one line on the screen, and whole in the report."""

from __future__ import annotations

import json

from roles.engine.venv import folded, installed

PINS = [f"package-{number}=={number}.0" for number in range(149)]


def test_many_pins_are_one_short_line_with_sglang_first() -> None:
    text = folded([*PINS, "sglang==0.5.23"])
    assert text.startswith("sglang==0.5.23 package-0==0.0 ") and text.endswith(" and 146 more")
    assert len(text) < 120


def test_a_few_pins_are_all_there() -> None:
    assert folded(["a==1", "b==2"]) == "a==1 b==2"
    assert folded([]) == ""


def test_what_is_installed_is_read_from_the_last_line() -> None:
    lines = ["pip says something", json.dumps({"torch": "2.14.1", "sglang": "0.5.23"})]
    assert installed(lines) == ["sglang==0.5.23", "torch==2.14.1"]
    for odd in ([], ["no json"], ["[1]"]):
        assert installed(odd) == []
