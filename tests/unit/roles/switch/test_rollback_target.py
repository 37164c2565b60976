"""The release that a rollback on demand goes to."""

from __future__ import annotations

from typing import Any

import pytest

from roles.remote import snapshot
from roles.switch.rollback import target_of


@pytest.mark.parametrize(
    ("releases", "target"),
    [
        ({"current": "b", "known_good": "b", "previous": "a", "staged": ["a", "b"]}, "a"),
        ({"current": "c", "known_good": "b", "previous": "a", "staged": ["a", "b", "c"]}, "b"),
        ({"current": "c", "known_good": "b", "previous": "a", "staged": ["a", "c"]}, "a"),
        ({"current": "b", "known_good": "b", "previous": "a", "staged": ["b"]}, None),
        ({"current": "b", "known_good": "b", "previous": None, "staged": ["b"]}, None),
        ({"staged": None}, None),
        (None, None),
    ],
)
def test_the_known_good_one_then_the_previous_one(releases: Any, target: str | None) -> None:
    facts = {"engines": {"e": {"releases": releases}}}
    assert target_of(snapshot.releases(facts, "e")) == target
