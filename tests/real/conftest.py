"""Container hosts, as in tests/container, for the matrices on real engines."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.container.conftest import (
    HostFactory,
    container_host,
    host_factory,
    host_prefix,
    module_host_factory,
)
from tests.container.engine_unit import EngineUnit, lent
from tests.container.real_engine import RealEngine, prepared
from tests.hosts.host import Host

__all__ = ["container_host", "host_factory", "host_prefix", "module_host_factory"]


@pytest.fixture(scope="module")
def host(module_host_factory: HostFactory) -> Host:
    """A host with the real engine."""
    return prepared(module_host_factory("real", image="engine"))


@pytest.fixture
def engine(host: Host, tmp_path: Path) -> Iterator[EngineUnit]:
    """The real engine's unit on `host`."""
    yield from lent(RealEngine(host, tmp_path))
