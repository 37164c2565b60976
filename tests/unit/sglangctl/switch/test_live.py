"""The unit's file and the link of a release that is put live."""

from __future__ import annotations

import errno
from pathlib import Path
from typing import Any

import pytest

from sglangctl.state.paths import Paths
from sglangctl.switch import live
from tests.support.engine_config import ENGINE


def test_a_unit_that_is_as_it_should_be_is_not_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Going back failed on a read-only /etc, where the old unit still was."""
    paths = Paths(tmp_path)
    release = paths.releases(ENGINE.name) / "0123456789ab"
    release.mkdir(parents=True)
    (release / "sglang.service").write_text("[Service]\n")
    paths.units.mkdir(parents=True)
    file = paths.units / ENGINE.unit
    file.write_text("[Service]\n")
    file.chmod(0o644)

    def read_only(path: Path, *more: Any) -> None:
        raise OSError(errno.EROFS, "read-only", str(path))

    monkeypatch.setattr(live, "write_atomic", read_only)
    live.put_live(ENGINE, "0123456789ab", None, paths)
    assert paths.current(ENGINE.name).resolve() == release
    file.write_text("[Service]\nNice=5\n")
    with pytest.raises(OSError, match="read-only"):
        live.put_live(ENGINE, "0123456789ab", None, paths)
