"""pytest's fixtures for stand-in engines on this machine; a test file imports both names."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.hosts.standins.local import Machine, unpacked

__all__ = ["machine", "site"]


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The stand-in engine's package, for PYTHONPATH."""
    return unpacked(tmp_path_factory.mktemp("site"))


@pytest.fixture
def machine(tmp_path: Path, site: Path) -> Iterator[Machine]:
    """Devices and a model; what was started on it is ended with the test."""
    made = Machine(tmp_path, site)
    try:
        yield made
    finally:
        made.end_all()
