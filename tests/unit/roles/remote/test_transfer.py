"""A host that stops in the middle of a file fails, and only that host."""

from __future__ import annotations

import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import gevent
import pytest

from roles.remote import transfer
from roles.remote.failing import HostFailed
from roles.sgl_kernel.kernel_host import KernelHost


def host(put: Any = None, get: Any = None) -> KernelHost:
    remote = SimpleNamespace(name="bad", put_file=put, get_file=get)
    return KernelHost(cast(Any, None), cast(Any, remote), sudo=False)


@pytest.fixture(autouse=True)
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(transfer, "STALL_S", 0.3)


def stalls(file: Any) -> bool:
    """As pyinfra does it: again after an error."""
    for _ in range(3):
        try:
            gevent.sleep(60)
        except OSError:
            continue
    return True


def test_an_upload_that_stalls_ends_and_the_other_host_goes_on(tmp_path: Path) -> None:
    wheel = tmp_path / "x.whl"
    wheel.write_bytes(b"x" * 100)

    def put(file: Any, path: str, **options: Any) -> bool:
        assert file.read(10) == b"x" * 10
        return stalls(file)

    ticks: list[float] = []
    other = gevent.spawn(lambda: [ticks.append(gevent.sleep(0.05) or 1) for _ in range(4)])
    began = time.monotonic()
    with pytest.raises(HostFailed, match=r"x\.whl to /there: nothing moved"):
        host(put=put).send(wheel, "/there")
    assert time.monotonic() - began < 10
    other.join()
    assert len(ticks) == 4


def test_a_download_that_stalls_ends(tmp_path: Path) -> None:
    def get(path: str, file: Any, **options: Any) -> bool:
        file.write(b"x")
        return stalls(file)

    with pytest.raises(HostFailed, match="from bad: nothing moved"):
        host(get=get).fetch("/there", tmp_path / "x.whl")


@pytest.mark.slow
def test_a_slow_one_that_moves_does_not(tmp_path: Path) -> None:
    wheel = tmp_path / "x.whl"
    wheel.write_bytes(b"x" * 8)

    def put(file: Any, path: str, **options: Any) -> bool:
        while file.read(1):
            gevent.sleep(0.1)
        return True

    def get(path: str, file: Any, **options: Any) -> bool:
        for _ in range(8):
            file.write(b"y")
            gevent.sleep(0.1)
        return True

    host(put=put).send(wheel, "/there")
    host(get=get).fetch("/there", tmp_path / "y")
    assert (tmp_path / "y").read_bytes() == b"y" * 8
