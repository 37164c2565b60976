"""The gate of SGLang 0.5.23: rank 0's server on a port of its own, and the wait of all ranks."""

from __future__ import annotations

import threading
import time
from typing import Any

from sglang._standin.shared.http_server import Answer, Request, Server, listen


class Gate:
    """Rank 0's."""

    def __init__(self, host: str, port: int, log: Any) -> None:
        self.active = threading.Event()
        server = Server(listen(host, port), self._route, lambda line: None)
        threading.Thread(target=server.serve_forever, args=(0.1,), daemon=True).start()
        log.line(f"Gated launch control server started on {host}:{port}")

    def _route(self, request: Request) -> Answer:
        if (request.method, request.path) == ("POST", "/gate/activate"):
            self.active.set()
        elif (request.method, request.path) != ("GET", "/health"):
            return 404, "text/plain", b""
        return 200, "text/plain", b"OK"


def wait(rank: Any) -> None:
    """Until it is let in; a line every 10 s, as the engine does."""
    args, number = rank.args, rank.wiring.number
    port = getattr(args, "gated_launch_port", None)
    if port is None:
        return
    gate = Gate(args.host, int(port), rank.log) if number == 0 else None
    rank.log.line(f"Gated launch waiting for activation. rank={number}")
    began = time.monotonic()
    while gate is not None and not gate.active.wait(10):
        rank.log.line(
            f"Gated launch still waiting for activation. rank={number} "
            f"elapsed={time.monotonic() - began:.0f} s"
        )
    rank.barrier()
    rank.log.line(f"Gated launch activated. elapsed={time.monotonic() - began:.2f} s")
