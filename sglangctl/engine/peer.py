"""Whether a connection ends at the engine's own processes, shown by the kernel before a key goes over
it: any user of this host may listen on the engine's port while it does not.

The far end of a connection within this host is a socket here too, and its inode is in the table of
descriptors of the processes that hold it. Until accept(2) it has no inode: it then waits at the
listening socket that took it, and never goes to another, so that this one's owner decides. That
wait is looked at twice, before and after the listeners, because a stranger may accept, close its
socket and let the engine bind in between.
"""

from __future__ import annotations

import socket
import time
from collections.abc import Callable, Iterable

from sglangctl.proc import sockets

Pids = Callable[[], Iterable[int]]
"""The engine's processes, as they are now."""
TRIES = 5
PAUSE_S = 0.01
"""The last packet of a connection's beginning may be under way when connect(2) returns."""


def is_ours(connection: socket.socket, pids: Pids) -> bool:
    """Whether all that hold the far end of a connected TCP socket, or will, are of `pids`; False also
    where that cannot be seen (another host, a network namespace, descriptors of others)."""
    for attempt in range(TRIES):
        if attempt:
            time.sleep(PAUSE_S)
        end = sockets.far_end(connection)
        if end is None or end.state != sockets.ESTABLISHED:
            continue
        if end.inode:
            return _held({end.inode}, pids)
        waiting_at = {item.inode for item in sockets.listeners_at(end.address, end.port)}
        ours = _held(waiting_at, pids)
        if sockets.far_end(connection) == end:
            return ours
    return False


def _held(inodes: set[int], pids: Pids) -> bool:
    """Whether each socket is held by one of `pids`, which still was one afterwards: the number of a
    process that ended meanwhile may be a stranger's."""
    held = sockets.holders_of(inodes, pids())
    after = set(pids())
    return bool(inodes) and all(after.intersection(found) for found in held.values())
