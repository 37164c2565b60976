"""Container hosts, as in tests/container, for the matrices on real engines."""

from __future__ import annotations

from tests.container.conftest import container_host, host_factory, host_prefix, module_host_factory

__all__ = ["container_host", "host_factory", "host_prefix", "module_host_factory"]
