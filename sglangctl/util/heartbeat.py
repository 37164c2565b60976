"""A progress line every ten seconds during a wait that prints nothing itself."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

BEAT_S = 10.0


@contextmanager
def heartbeat(
    say: Callable[[str], object], what: str | Callable[[], str], limit_s: float
) -> Iterator[None]:
    """Say `waiting for WHAT: ELAPSED of at most LIMIT` every BEAT_S until the block ends.

    From a thread: what is waited for may block (systemctl, a container's engine). The block
    itself should say nothing meanwhile.
    """
    over = threading.Event()

    def beat() -> None:
        began = time.monotonic()
        while not over.wait(BEAT_S):
            text = what if isinstance(what, str) else what()
            say(f"waiting for {text}: {time.monotonic() - began:.0f} s of at most {limit_s:.0f} s")

    thread = threading.Thread(target=beat, name="heartbeat", daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()
