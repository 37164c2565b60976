"""HTTP requests to the engine: one at a time, each with a limit for the whole answer."""

from __future__ import annotations

import http.client
import json
import queue
import socket
import ssl
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass
from typing import Any

from sglangctl.engine import peer
from sglangctl.engine.bounded_socket import BoundedSocket
from sglangctl.engine.peer import Pids
from sglangctl.masking.masker import Masker, read_engine_yaml, secrets_of
from sglangctl.state.config import EngineConfig
from sglangctl.state.paths import Paths
from sglangctl.util.values import mapping

BODY_LIMIT = 4 * 2**20
"""Bytes of an answer that are read; /server_info and /metrics stay well below."""
WIRE_LIMIT = 4 * BODY_LIMIT
"""Bytes of an exchange, headers and the sizes of chunks included; also of a streamed answer."""


@dataclass(frozen=True)
class Endpoint:
    """Where the engine answers, and the key that it wants (never printed: not in repr)."""

    host: str
    port: int
    tls: bool = False
    api_key: str | None = None
    ours: Pids = tuple
    """Who gets the key: a connection that none of them holds is asked without it."""
    mask: Callable[[str], str] = str
    """Takes the engine's secrets out of what it, or whoever answers in its place, says."""

    def __repr__(self) -> str:
        return f"Endpoint({self.host}:{self.port}, tls={self.tls})"

    def headers(self, connection: socket.socket) -> dict[str, str]:
        """Of a request over this connection, which is open already."""
        if not self.api_key or not peer.is_ours(connection, self.ours):
            return {}
        return {"Authorization": f"Bearer {self.api_key}"}


@dataclass(frozen=True)
class Answer:
    """`status` None: no HTTP answer, then `error` is the exception's name, as in the journal."""

    path: str
    status: int | None
    error: str | None
    seconds: float
    body: bytes = b""

    def json(self) -> Any:
        """The body as JSON, None if it is not."""
        return loads(self.body)

    def object(self) -> dict[str, Any]:
        """The JSON object that it is with status 200, else an empty one."""
        return mapping(self.json()) if self.status == 200 else {}


def loads(raw: bytes) -> Any:
    """An answer as JSON, None if it is not. A number that no counter of an engine reaches is a
    float, an infinite one where it has to be: Python's own reading of a huge integer takes time
    that grows with its square, and arithmetic with it raises OverflowError."""
    try:
        return json.loads(raw, parse_int=_number)
    except (ValueError, RecursionError):
        return None


def endpoint(config: EngineConfig, paths: Paths, ours: Pids) -> Endpoint:
    """The engine's address as this host reaches it, and its key from the live release, for `ours`.

    PermissionError passes through: a question without the key would be answered 401 and the
    engine called broken. No release yet: no key.
    """
    release = paths.current(config.name).resolve()
    try:
        flags = read_engine_yaml(release / "engine.yaml")
    except FileNotFoundError:
        flags = {}
    key = flags.get("api-key")
    return Endpoint(
        host=reachable(config.listen),
        port=config.port,
        tls=bool(flags.get("ssl-certfile")),
        api_key=str(key) if key else None,
        ours=ours,
        mask=Masker(secrets_of(release)).mask,
    )


def reachable(listen: str) -> str:
    """The address at which this host itself reaches a server that listens on `listen`."""
    return {"0.0.0.0": "127.0.0.1", "": "127.0.0.1", "::": "::1"}.get(listen, listen)


class Exchange:
    """One request and its answer, every step of it within `timeout_s` of the beginning, and at
    most WIRE_LIMIT bytes of it: see BoundedSocket."""

    def __init__(self, where: Endpoint, timeout_s: float) -> None:
        self.began = time.monotonic()
        self.deadline = self.began + timeout_s
        self._connection: http.client.HTTPConnection
        if where.tls:
            # Our own engine on this host: its certificate names the host that clients use.
            context = ssl._create_unverified_context()
            self._connection = http.client.HTTPSConnection(
                where.host, where.port, timeout=timeout_s, context=context
            )
        else:
            self._connection = http.client.HTTPConnection(where.host, where.port, timeout=timeout_s)
        self._where = where
        self._socket: BoundedSocket | None = None
        self.response: http.client.HTTPResponse

    def seconds(self) -> float:
        return time.monotonic() - self.began

    def send(self, path: str, document: Mapping[str, Any] | None = None) -> int:
        """Send a GET, or a POST of `document`; returns the status once the headers are here."""
        connection = self._connection
        connection.connect()
        headers = self._where.headers(connection.sock)
        self._socket = BoundedSocket(connection.sock, self.deadline, WIRE_LIMIT)
        connection.sock = self._socket
        if document is None:
            connection.request("GET", path, headers=headers)
        else:
            headers["Content-Type"] = "application/json"
            connection.request("POST", path, json.dumps(document).encode(), headers)
        self.response = connection.getresponse()
        return self.response.status

    def read(self) -> bytes:
        """The rest of the body, at most BODY_LIMIT."""
        parts: list[bytes] = []
        room = BODY_LIMIT
        while room > 0:
            self._limit()
            part = self.response.read1(min(room, 65536))
            if not part:
                break
            parts.append(part)
            room -= len(part)
        # http.client gives more than it was asked for where a chunk's size is negative.
        return b"".join(parts)[:BODY_LIMIT]

    def lines(self) -> Iterator[bytes]:
        """The body line by line, as it comes."""
        while True:
            self._limit()
            line = self.response.readline(BODY_LIMIT)
            if not line:
                return
            yield line

    def close(self) -> None:
        self._connection.close()
        if self._socket is not None:
            self._socket.close_now()

    def _limit(self) -> None:
        """Between two reads: what is buffered comes without a look at the socket."""
        if time.monotonic() >= self.deadline:
            raise TimeoutError("timed out")


def _number(text: str) -> int | float:
    return int(text) if len(text) <= 18 else float(text)


def error_name(error: Exception) -> str:
    """The name of a network error, the same on every Python (3.9 still has socket.timeout)."""
    name = type(error).__name__
    return "TimeoutError" if name == "timeout" else name


def ask(
    where: Endpoint, path: str, timeout_s: float, document: Mapping[str, Any] | None = None
) -> Answer:
    """One question; never raises for what the network or the server does."""
    began = time.monotonic()
    try:
        with closing(Exchange(where, timeout_s)) as talk:
            status = talk.send(path, document)
            body = talk.read()
            return Answer(path, status, None, talk.seconds(), body)
    except (OSError, http.client.HTTPException, ValueError) as error:
        return Answer(path, None, error_name(error), time.monotonic() - began)


class Prober:
    """Asks in a thread of its own; one question in flight at a time, never two.

    SGLang's health check is a request to the scheduler: piled up they are load of their own.
    `wake` is called (from that thread) when an answer is there.
    """

    def __init__(self, wake: Callable[[], None] = lambda: None) -> None:
        self._wake = wake
        self._questions: queue.SimpleQueue[Callable[[], Any] | None] = queue.SimpleQueue()
        self._answers: queue.SimpleQueue[Any] = queue.SimpleQueue()
        self._thread: threading.Thread | None = None
        self.busy = False

    def start(self, question: Callable[[], Any]) -> bool:
        """Ask unless a question is still out; returns whether this one was sent."""
        if self.busy:
            return False
        self.busy = True
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name="probe", daemon=True)
            self._thread.start()
        self._questions.put(question)
        return True

    def poll(self) -> Any:
        """The answer if it has come, else None."""
        try:
            answer = self._answers.get_nowait()
        except queue.Empty:
            return None
        self.busy = False
        return answer

    def close(self) -> None:
        """Let the thread end (after the question that it may be waiting for)."""
        if self._thread is not None:
            self._questions.put(None)

    def _run(self) -> None:
        while True:
            question = self._questions.get()
            if question is None:
                return
            try:
                answer = question()
            except Exception as error:
                # An internal error in a request must not end the watch; it becomes a visible answer.
                answer = error
            self._answers.put(answer)
            self._wake()
