"""Who owns the engine's port: the engine's own processes, or another process."""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable
from dataclasses import dataclass

from sglangctl.proc import membership, procfs, sockets
from sglangctl.proc.sockets import Listener

LOOK_S = 1.0
"""Time limit for naming another owner. That it is not the engine is known before."""


@dataclass(frozen=True)
class Owner:
    """Who answers on the port. `pid` None: not visible to this user; `ours` None: cannot tell."""

    port: int
    pid: int | None
    ours: bool | None


def find(port: int, listen: str, pids: Iterable[int], net_of: int | None = None) -> Owner | None:
    """Who owns the port, given the engine's own `pids`; None: nobody listens there.

    Where an engine's and another process's socket listen side by side, the other one is returned: an
    answer may then come from it.
    """
    found = relevant(sockets.listeners(net_of, port), listen)
    if not found:
        return None
    inodes = {item.inode for item in found}
    ours = {inode: held for inode, held in sockets.holders_of(inodes, pids).items() if held}
    not_ours = inodes - ours.keys()
    if not not_ours:
        return Owner(port, min(min(held) for held in ours.values()), True)
    held_by = sockets.holders_of(not_ours, limit_s=LOOK_S)
    others = sorted({pid for held in held_by.values() for pid in held})
    if others:
        return Owner(port, others[0], False)
    return Owner(port, None, False if _sees_all(pids) else None)


def named(pid: int) -> str | None:
    """`nginx (pid 812, nginx.service)`; None where it has ended."""
    found = procfs.stat(pid)
    if found is None:
        return None
    return f"{found.comm} (pid {pid}, {membership.of(pid).unit or 'no unit'})"


def relevant(found: Iterable[Listener], listen: str) -> list[Listener]:
    """Those that answer a client of `listen` (an address; a host name stands for all).

    A dual-stack socket on :: answers for IPv4 where no IPv4 socket does, and only then.
    """
    found = list(found)
    try:
        wanted = ipaddress.ip_address(listen)
    except ValueError:
        return found
    near = []
    for item in found:
        address = ipaddress.ip_address(item.address)
        if address.version == wanted.version and (
            address == wanted or address.is_unspecified or wanted.is_unspecified
        ):
            near.append(item)
    return near or [item for item in found if item.address == "::"]


def _sees_all(pids: Iterable[int]) -> bool:
    """Whether this user may look at least at the descriptors of our processes.

    As the engine's own user they are: a socket that none of them holds is then another's.
    """
    return any(True for pid in pids for _ in procfs.links(pid))
