"""For tests of commands: an installation in a folder, with one engine on a free port."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.engine_host import free_port, write_config


@pytest.fixture
def port() -> int:
    return free_port()


@pytest.fixture
def root(tmp_path: Path, port: int, monkeypatch: pytest.MonkeyPatch) -> Path:
    """SGLANGCTL_ROOT, whose engine is `tiny`."""
    monkeypatch.setenv("SGLANGCTL_ROOT", str(tmp_path))
    write_config(tmp_path, port)
    return tmp_path
