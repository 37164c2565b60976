"""Container hosts for the tests that need a machine.

`host_factory(name="a", image="base", gpus=2, ...)` starts a host that ends with the test;
`container_host` is a ready one with two fake GPUs. `host` has the stand-in engine too, for all tests
of a file, and `engine` is its unit; a file that needs another host has its own.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.container.engine_unit import EngineUnit, lent, prepare
from tests.hosts import images
from tests.hosts.host import Host

ROOT = Path(__file__).resolve().parents[2]


def pytest_collection_finish(session: pytest.Session) -> None:
    """Have the Docker engine and the images ready before any test's own time limit runs."""
    markers = ("container", "real")
    needed = any(item.get_closest_marker(name) for item in session.items for name in markers)
    if not needed or session.config.option.collectonly:
        return
    capture = session.config.pluginmanager.getplugin("capturemanager")
    with capture.global_and_fixture_disabled():
        subprocess.run([ROOT / "tests/hosts/docker_engine.sh", "start"], check=True)
        for kind in ("base", "engine"):
            images.ensure(kind)


HostFactory = Callable[..., Host]


@pytest.fixture(scope="session")
def host_prefix() -> str:
    """Names of containers start with this: several runs may share one Docker engine."""
    return f"{os.environ.get('CONTAINER_HOST_PREFIX', 'sglang-test')}-{os.getpid()}"


def _factory(prefix: str, hosts: list[Host]) -> HostFactory:
    def make(name: str = "host", **options: object) -> Host:
        host = Host.create(f"{prefix}-{name}", **options)  # type: ignore[arg-type]
        hosts.append(host)
        return host

    return make


def _remove(hosts: list[Host]) -> None:
    # KEEP_HOSTS=1 leaves them for a look after a failed test; `make clean` takes them away.
    if not os.environ.get("KEEP_HOSTS"):
        for host in hosts:
            host.remove()


@pytest.fixture
def host_factory(host_prefix: str) -> Iterator[HostFactory]:
    """Start hosts for one test: `host_factory("a", gpus=2)`; options are those of Host.create."""
    hosts: list[Host] = []
    try:
        yield _factory(host_prefix, hosts)
    finally:
        _remove(hosts)


@pytest.fixture(scope="module")
def module_host_factory(host_prefix: str, request: pytest.FixtureRequest) -> Iterator[HostFactory]:
    """Like host_factory, for hosts that all tests of a file share."""
    stem = request.path.stem.removeprefix("test_").replace("_", "-")
    hosts: list[Host] = []
    try:
        yield _factory(f"{host_prefix}-{stem}", hosts)
    finally:
        _remove(hosts)


@pytest.fixture
def container_host(host_factory: HostFactory) -> Host:
    """A bare host with two fake GPUs, for this test alone."""
    return host_factory("host", gpus=2)


@pytest.fixture(scope="module")
def host(module_host_factory: HostFactory) -> Host:
    """A host with the stand-in engine and two fake GPUs."""
    made = module_host_factory("host", gpus=2)
    prepare(made)
    return made


@pytest.fixture
def engine(host: Host, tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[EngineUnit]:
    """The stand-in's unit on `host`, with the file's LIMITS."""
    unit = EngineUnit(host, tmp_path)
    unit.limits = getattr(request.module, "LIMITS", {})
    yield from lent(unit)
