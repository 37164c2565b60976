"""The launcher's side of every request: what the real tokenizer manager does."""

from __future__ import annotations

import os
import queue
import threading
import time
import uuid
from multiprocessing.connection import Connection
from typing import Any, Callable

from sglang._standin import options
from sglang._standin.flags import ServerArgs
from sglang._standin.log import Log


class Manager:
    """Requests in flight, the health flag, and the counters of /metrics."""

    def __init__(
        self,
        args: ServerArgs,
        log: Log,
        requests: Connection,
        control: Connection,
        texts: Connection,
        notify: Callable[[str], None],
    ) -> None:
        self.args = args
        self.log = log
        self.status = "Starting"
        self.stopping = False
        self.pending: dict[str, queue.Queue[dict[str, Any]]] = {}
        self.waiting_info = 0
        self.last_reply = 0.0
        self.counters = {"prompt": 0, "generation": 0, "requests": 0, "spec_steps": 0, "spec": 0}
        self._requests = requests
        self._lock = threading.Lock()
        self._notify = notify
        self._touched = False
        for source, handler in [(texts, self._text), (control, self._info)]:
            threading.Thread(target=_pump, args=(source, handler), daemon=True).start()

    def _text(self, message: dict[str, Any]) -> None:
        self.last_reply = time.time()
        receiver = self.pending.get(message["rid"])
        if receiver:
            receiver.put(message)
            if message["finish"]:
                self.pending.pop(message["rid"], None)

    def _info(self, message: dict[str, Any]) -> None:
        # Any reply of the scheduler counts as life, as in the real engine.
        self.last_reply = time.time()
        receiver = self.pending.get(message["id"])
        if receiver:
            receiver.put(message)

    def send(self, message: dict[str, Any]) -> None:
        """To rank 0; one that is gone is found out by the watchdog."""
        with self._lock:
            try:
                self._requests.send(message)
            except OSError:
                return

    def submit(
        self, words: list[str], prompt_tokens: int, max_tokens: int, health: bool = False
    ) -> tuple[str, queue.Queue[dict[str, Any]]]:
        """Start a generation; its pieces come through the queue, the last one with `finish`."""
        if not self._touched:
            self._touched = True
            self._notify("first-request")
        rid = ("HEALTH_CHECK_" if health else "") + uuid.uuid4().hex
        receiver: queue.Queue[dict[str, Any]] = queue.Queue()
        self.pending[rid] = receiver
        self.send(
            {
                "kind": "generate",
                "rid": rid,
                "words": words,
                "prompt_tokens": prompt_tokens,
                "max_tokens": max_tokens,
                "health": health,
            }
        )
        return rid, receiver

    def info(self) -> dict[str, Any]:
        """The scheduler's own state; waits for it for ever."""
        key = f"info-{uuid.uuid4().hex}"
        receiver: queue.Queue[dict[str, Any]] = queue.Queue()
        self.pending[key] = receiver
        self.waiting_info += 1
        self.send({"kind": "info", "id": key})
        state = receiver.get()["state"]
        self.waiting_info -= 1
        self.pending.pop(key, None)
        return dict(state)

    def health(self) -> int:
        """The status of /health: a one-token request, looked at once a second."""
        if self.stopping:
            self.log.line("Health check request received during shutdown. Returning 503.")
            return 503
        if self.status == "Starting":
            return 503
        begin = time.time()
        own = float(os.environ.get("SGLANG_HEALTH_CHECK_TIMEOUT", 20))
        timeout = options.number("HEALTH_TIMEOUT_S", options.scaled(own))
        rid, _ = self.submit([" ok"], 1, 1, health=True)
        while time.time() < begin + timeout:
            time.sleep(options.number("HEALTH_S", 1.0))
            if self.last_reply > begin:
                self.pending.pop(rid, None)
                self.status = "Up"
                return 200
        self.pending.pop(rid, None)
        self.status = "UnHealthy"
        clock = [time.strftime("%H:%M:%S", time.localtime(t)) for t in (begin, self.last_reply)]
        self.log.line(
            "Health check failed. Server couldn't get a response from detokenizer for last "
            f"{round(timeout) or timeout} seconds. tic start time: {clock[0]}. last_heartbeat "
            f"time: {clock[1]}",
            "error",
        )
        return 503

    def remaining(self) -> list[str]:
        """Ids of the generations in flight."""
        return [rid for rid in list(self.pending) if not rid.startswith("info-")]


def _pump(source: Connection, handler: Callable[[dict[str, Any]], None]) -> None:
    """Hand on what arrives; a process that died is somebody else's business."""
    while True:
        try:
            message = source.recv()
        except (EOFError, OSError):
            return
        handler(message)
