"""Who listens on which TCP port: /proc/net/tcp and tcp6, and the processes that own the sockets."""

from __future__ import annotations

import ipaddress
import math
import socket
import sys
import time
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sglangctl.proc import procfs

LISTEN = "0A"
"""The state TCP_LISTEN in /proc/net/tcp (proc(5), include/net/tcp_states.h)."""
ESTABLISHED = "01"


@dataclass(frozen=True)
class Listener:
    """One listening TCP socket. `address` is plain text, `0.0.0.0` and `::` stand for all."""

    address: str
    port: int
    inode: int


@dataclass(frozen=True)
class End:
    """One end of a connection. `inode` 0: no process has it, not accepted yet or let go of."""

    address: str
    port: int
    state: str
    inode: int


def listeners(pid: int | None = None, port: int | None = None) -> list[Listener]:
    """All listening TCP sockets (on `port`), IPv4 and IPv6, of our network namespace or `pid`'s."""
    found = []
    for words in _rows(pid, port) or ():
        end = _end(words[1]) if words[3] == LISTEN else None
        if end is not None and port in (None, end[1]):
            found.append(Listener(*end, int(words[9])))
    return found


def owners(port: int, pids: Iterable[int] | None = None) -> list[int]:
    """The processes (of all, or of `pids`) that hold a listening socket on `port`, ascending.

    A socket may have several (forked workers). Empty: nobody listens, or the owner is not
    ours to look at (not root, or another network namespace).
    """
    inodes = {item.inode for item in listeners(port=port)}
    return sorted(
        {owner for found in holders_of(inodes, pids).values() for owner in found} if inodes else ()
    )


def chosen_by_kernel() -> range:
    """The ports of which Linux gives one to a program that asks for any (ip(7), ip_local_port_range)."""
    try:
        text = Path(f"{procfs.PROC}/sys/net/ipv4/ip_local_port_range").read_text(encoding="ascii")
        first, last = map(int, text.split())
    except (OSError, ValueError):
        first, last = 32768, 60999
    return range(first, last + 1)


def connections(port: int, pid: int | None = None) -> int | None:
    """Established TCP connections to `port` here (of `pid`'s network namespace); None: unknown."""
    rows, local = _rows(pid, port), f":{port:04X}"
    if rows is None:
        return None
    return sum(words[1].endswith(local) and words[3] == ESTABLISHED for words in rows)


def listeners_at(address: str, port: int) -> list[Listener]:
    """The listening sockets here that may take a connection to this address."""
    return [item for item in listeners(port=port) if item.address in (address, "0.0.0.0", "::")]


def far_end(connection: socket.socket) -> End | None:
    """The other end of a connected TCP socket, where it is in our network namespace, else None.
    OSError when it is not connected."""
    near, far = _plain(connection.getsockname()), _plain(connection.getpeername())
    for words in _rows(None, far[1]) or ():
        if (_end(words[1]), _end(words[2])) == (far, near):
            return End(*far, words[3], int(words[9]))
    return None


def holders_of(
    inodes: Iterable[int], pids: Iterable[int] | None = None, limit_s: float = math.inf
) -> dict[int, list[int]]:
    """Socket inode -> the processes (of all, or of `pids`) that have it open, as far as was seen in
    `limit_s` seconds: how many files others have open is their own choice."""
    end = time.monotonic() + limit_s
    names = {f"socket:[{inode}]": inode for inode in inodes}
    found: dict[int, list[int]] = {inode: [] for inode in names.values()}
    for pid in procfs.pids() if pids is None else pids:
        for link in procfs.links(pid):
            if link in names and pid not in found[names[link]]:
                found[names[link]].append(pid)
            if time.monotonic() > end:
                return found
    return found


def _rows(pid: int | None, port: int | None) -> list[list[str]] | None:
    """The sockets (with `port` at one end) of our network namespace or `pid`'s, each as the words of
    its line; None: unknown."""
    # A busy server has thousands of connections here: only the port's lines are parsed.
    wanted = "" if port is None else f":{port:04X} "
    found = None
    for name in ("tcp", "tcp6"):
        try:
            with open(f"{procfs.PROC}/{pid or 'self'}/net/{name}", encoding="ascii") as file:
                lines = [line.split() for line in file if wanted in line]
        except OSError:
            continue  # no IPv6, or the process is gone
        found = (found or []) + [words for words in lines if len(words) > 9]
    return found


def _end(text: str) -> tuple[str, int] | None:
    host, _, port = text.rpartition(":")
    try:
        return address_of(host), int(port, 16)
    except ValueError:
        return None


def _plain(name: tuple[Any, ...]) -> tuple[str, int]:
    """A socket's name as `address_of` writes it."""
    return _written(ipaddress.ip_address(name[0].partition("%")[0])), name[1]


def address_of(text: str) -> str:
    """`0100007F` -> `127.0.0.1`: 32-bit words in the machine's byte order; ValueError if not."""
    raw = bytes.fromhex(text)
    if sys.byteorder == "little":
        raw = b"".join(raw[at : at + 4][::-1] for at in range(0, len(raw), 4))
    return _written(ipaddress.ip_address(raw))


def _written(address: ipaddress.IPv4Address | ipaddress.IPv6Address) -> str:
    mapped = getattr(address, "ipv4_mapped", None)
    return str(mapped or address)
