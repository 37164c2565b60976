"""STANDIN_REPLAY: say what a recorded start said, faster, around the same processes.

The journal's log events are written as they were, in STANDIN_REPLAY_S seconds altogether up to
"ready to roll" or the recorded exit; this run's own lines are left out until then. The children
come with `server_args=`, the port with `Uvicorn running on`, health with the ready line; a
recorded exit before that ends this run with the same status.
"""

from __future__ import annotations

import json
import os
import re
import signal
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, NoReturn

from sglang._standin import options
from sglang._standin.log import Log, raw
from sglang._standin.shared.http_server import listen

if TYPE_CHECKING:
    from sglang._standin.launcher import Launcher
    from sglang._standin.shared.devices import Devices

READY = "The server is fired up and ready to roll!"
SPAWN = "server_args="
BOUND = "Uvicorn running on"
QUIET = "STANDIN_QUIET"


class Replay:
    """The events of one journal, up to the ready line or the exit."""

    def __init__(self, path: str, port: int) -> None:
        self.port = port
        self.events: list[dict[str, Any]] = []
        self.returncode: int | None = None
        bound = False
        with open(path, encoding="utf-8") as file:
            for event in map(json.loads, file):
                if event["kind"] == "log":
                    self.events.append(event)
                    bound = bound or BOUND in event["data"]
                    # Without a port of its own the ready line is no end: an exit follows.
                    if READY in event["data"] and bound:
                        break
                elif event["kind"] == "exit":
                    self.events.append(event)
                    self.returncode = event["returncode"]
                    break
        last = self.events[-1]["t"] if self.events else 1.0
        self.factor = options.number("REPLAY_S", 2.0) / max(last, 0.001)

    def marks(self) -> Iterator[str]:
        """Write the log; yields SPAWN, BOUND and READY after their lines were written."""
        begin = time.monotonic()
        for event in self.events:
            time.sleep(max(0.0, begin + event["t"] * self.factor - time.monotonic()))
            if event["kind"] == "exit":
                return
            raw(
                re.sub(
                    r"(Uvicorn running on http://[^: ]+:)\d+", rf"\g<1>{self.port}", event["data"]
                )
            )
            for mark in (SPAWN, BOUND, READY):
                if mark in event["data"]:
                    yield mark


def asked() -> str:
    """The journal to replay, empty for none."""
    return options.text("REPLAY")


def quiet() -> bool:
    """Whether this process leaves its own lines out."""
    return os.environ.get(QUIET) == "1"


def play(launcher: Launcher, held: Devices) -> NoReturn:
    """Run the engine along a recorded journal."""
    args = launcher.args
    record = Replay(asked(), args.port)
    Log.silent = True
    os.environ[QUIET] = "1"
    os.environ.setdefault("STANDIN_START_S", "0.2")
    options.settings.cache_clear()
    signal.signal(signal.SIGQUIT, lambda *_: launcher.ending.child_failed_in_start())
    links: dict[str, Any] = {}
    manager = None
    for mark in record.marks():
        if mark == SPAWN and not links:
            links = launcher.spawn()
        elif mark == BOUND:
            manager, tokens = launcher.await_ranks(links)
            signal.signal(signal.SIGTERM, lambda *_: launcher.events.put(("term", None)))
            launcher.answer(manager, tokens, listen(args.host, args.port))
        elif mark == READY and manager:
            manager.status = "Up"
            launcher.asked.set()
    if record.returncode is not None:
        launcher.ending.as_recorded(record.returncode)
    Log.silent = False
    launcher.wait(held)
