from __future__ import annotations

import os
import socket
from pathlib import Path

import pytest

from sglangctl.proc import procfs, sockets
from tests.support.tools import leave_out

# As the kernel writes it (proc(5)): port 8000 on 127.0.0.1 listens, one connection, one closed.
TCP = """  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode
   0: 0100007F:1F40 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 4711 1 0
   1: 0100007F:1F40 0100007F:C350 01 00000000:00000000 00:00000000 00000000     0        0 4712 1 0
   2: 00000000:0016 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 99 1 0
"""
TCP6 = """  sl  local_address                         remote_address                        st
   0: 00000000000000000000000000000000:7530 00000000000000000000000000000000:0000 0A 0:0 0:0 0 0 0 12
   1: 0000000000000000FFFF00000100007F:7531 00000000000000000000000000000000:0000 0A 0:0 0:0 0 0 0 13
   2: short line
"""


@pytest.fixture
def proc(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of our network namespace's files, empty."""
    monkeypatch.setattr(procfs, "PROC", str(tmp_path))
    (tmp_path / "self/net").mkdir(parents=True)
    return tmp_path / "self/net"


def test_listening_sockets_only(proc: Path) -> None:
    (proc / "tcp").write_text(TCP)
    found = sockets.listeners()
    assert [item.inode for item in sockets.listeners(port=8000)] == [4711]
    assert [(item.address, item.port, item.inode) for item in found] == [
        ("127.0.0.1", 8000, 4711),
        ("0.0.0.0", 22, 99),
    ]


def test_ipv6_and_mapped_addresses(proc: Path) -> None:
    (proc / "tcp6").write_text(TCP6)
    assert [(item.address, item.port) for item in sockets.listeners()] == [
        ("::", 30000),
        ("127.0.0.1", 30001),
    ]


@pytest.mark.parametrize("family", [socket.AF_INET, socket.AF_INET6])
def test_a_real_listener_has_its_owner(family: socket.AddressFamily) -> None:
    with socket.socket(family, socket.SOCK_STREAM) as server:
        try:
            server.bind(("127.0.0.1" if family == socket.AF_INET else "::1", 0))
        except OSError:
            leave_out("no such address family here")
        port = server.getsockname()[1]
        assert sockets.owners(port) == []  # bound, not listening
        server.listen()
        assert sockets.owners(port) == [os.getpid()]
        assert sockets.owners(port, pids=[1]) == []
        assert port in {item.port for item in sockets.listeners()}
    assert sockets.owners(port) == []
