from __future__ import annotations

import os
import socket
import subprocess
import sys
from collections.abc import Iterator

import pytest

from sglangctl.engine import port_owner
from sglangctl.proc.sockets import Listener

LISTEN = """
import socket, sys
server = socket.socket()
server.bind(("127.0.0.1", int(sys.argv[1])))
server.listen()
print(server.getsockname()[1], flush=True)
sys.stdin.read()
"""


@pytest.fixture
def other() -> Iterator[tuple[int, int]]:
    """(pid, port) of another process that listens."""
    with subprocess.Popen(
        [sys.executable, "-c", LISTEN, "0"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    ) as process:
        assert process.stdout is not None and process.stdin is not None
        yield process.pid, int(process.stdout.readline())
        process.stdin.close()


def test_ours_and_another_s(other: tuple[int, int]) -> None:
    pid, port = other
    assert port_owner.find(port, "127.0.0.1", [pid]) == port_owner.Owner(port, pid, True)
    assert port_owner.find(port, "0.0.0.0", [os.getpid()]) == port_owner.Owner(port, pid, False)


def test_nobody_listens() -> None:
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        assert port_owner.find(bound.getsockname()[1], "127.0.0.1", [os.getpid()]) is None


@pytest.mark.parametrize(
    ("listen", "inodes"),
    [
        ("0.0.0.0", [1, 2, 3]),
        ("127.0.0.1", [1, 3]),
        ("10.0.0.5", [1, 2]),
        ("::", [4, 5]),
        ("::1", [4, 5]),
        ("gpu-host", [1, 2, 3, 4, 5]),
    ],
)
def test_only_sockets_that_answer_this_address_count(listen: str, inodes: list[int]) -> None:
    found = [
        Listener("0.0.0.0", 8000, 1),
        Listener("10.0.0.5", 8000, 2),
        Listener("127.0.0.1", 8000, 3),
        Listener("::", 8000, 4),
        Listener("::1", 8000, 5),
    ]
    assert [item.inode for item in port_owner.relevant(found, listen)] == inodes


def test_dual_stack_answers_where_no_ipv4_socket_does() -> None:
    found = [Listener("::", 8000, 4), Listener("fe80::1", 8000, 6)]
    assert [item.inode for item in port_owner.relevant(found, "0.0.0.0")] == [4]
