"""Files that flags name: there, and open to the engine's user."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import pytest

from sglangctl.preflight import files
from sglangctl.state.config import Preflight
from tests.support.engine_config import ENGINE
from tests.support.holding import passable

needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="looks as another user")


def looked_at(user: str, *paths: Path) -> list[str]:
    engine = replace(ENGINE, preflight=Preflight(files=tuple(map(str, paths))))
    found = list(files.look(engine, user))
    assert all((one.fix == files.SHIP) is (files.CLOSED in one.seen) for one in found)
    return [f"{one.level} {one.seen}" for one in found]


@needs_root
def test_what_is_not_there_or_closed_is_named() -> None:
    with passable() as folder:
        closed_and_gone(folder)


def closed_and_gone(folder: Path) -> None:
    good, closed, inside = folder / "a.jinja", folder / "b.json", folder / "private" / "c"
    inside.parent.mkdir()
    for file in (good, closed, inside):
        file.write_text("x")
        file.chmod(0o644)
    closed.chmod(0o600)
    inside.parent.chmod(0o700)
    gone = folder / "gone"
    assert looked_at("nobody", good, folder) == []
    first, second, third = looked_at("nobody", gone, closed, inside)
    assert first.startswith(f"fail {gone}, which a flag names, is not there")
    assert second.startswith(f"fail {closed}, ") and "0600" in second
    assert third.startswith(f"fail {inside}, ") and str(inside.parent) in third


def test_a_user_who_is_not_there_is_a_warning() -> None:
    (line,) = looked_at("nobody-of-this-name", Path("/x"))
    assert line.startswith("warn /x: not looked at")


def test_no_files_ask_nobody() -> None:
    assert looked_at("nobody-of-this-name") == []
