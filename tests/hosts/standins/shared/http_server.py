"""A small threaded HTTP server with uvicorn's manners, for both engines' stand-ins."""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Callable, Union

Body = Union[bytes, Iterator[bytes]]
Answer = tuple[int, str, Body]
Route = Callable[["Request"], Answer]


class Request:
    """One request: method, path without its query, headers, and the JSON body."""

    def __init__(self, method: str, path: str, headers: Any, body: bytes) -> None:
        self.method = method
        self.path = path.partition("?")[0]
        self.headers = headers
        self.body = body

    def json(self) -> dict[str, Any]:
        """The body as an object; ValueError when it is not one."""
        document = json.loads(self.body or b"{}")
        if not isinstance(document, dict):
            raise ValueError("the body must be a JSON object")
        return document


def answer(status: int, document: Any) -> Answer:
    """A JSON answer."""
    return status, "application/json", json.dumps(document).encode()


class Server(ThreadingHTTPServer):
    """Serves `route`; `frozen` makes every request hang, as a blocked event loop does."""

    daemon_threads = True
    request_queue_size = 128

    def __init__(
        self,
        listener: socket.socket,
        route: Route,
        access_log: Callable[[str], None],
        name: str = "uvicorn",
    ) -> None:
        super().__init__(listener.getsockname()[:2], _Handler, bind_and_activate=False)
        self.socket.close()
        self.socket = listener
        self.route = route
        self.access_log = access_log
        self.name = name
        self.frozen = threading.Event()

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that went away is no event."""


def listen(host: str, port: int) -> socket.socket:
    """A listening socket; OSError (errno 98) when the port is taken."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listener = socket.socket(family, socket.SOCK_STREAM)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((host, port))
        listener.listen(128)
    except OSError:
        listener.close()
        raise
    return listener


class _Handler(BaseHTTPRequestHandler):
    server: Server
    protocol_version = "HTTP/1.1"

    def version_string(self) -> str:
        return self.server.name

    def log_message(self, format: str, *args: Any) -> None:
        """uvicorn's own access log is written in _handle."""

    def _handle(self) -> None:
        length = int(self.headers.get("Content-Length") or 0)
        request = Request(self.command, self.path, self.headers, self.rfile.read(length))
        self._hang_if_frozen()
        status, kind, body = self.server.route(request)
        self._hang_if_frozen()
        phrase = self.responses.get(status, ("",))[0]
        address = f"{self.client_address[0]}:{self.client_address[1]}"
        self.server.access_log(
            f'{address} - "{self.command} {self.path} HTTP/1.1" {status} {phrase}'
        )
        self.send_response(status)
        if kind:
            self.send_header("Content-Type", kind)
        if isinstance(body, bytes):
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)
            return
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        for part in body:
            self.wfile.write(b"%x\r\n%s\r\n" % (len(part), part))
            self.wfile.flush()
        self.wfile.write(b"0\r\n\r\n")

    def _hang_if_frozen(self) -> None:
        if self.server.frozen.is_set():
            threading.Event().wait()

    do_GET = do_POST = do_PUT = do_DELETE = _handle


def bearer(headers: Any) -> str | None:
    """The token of an Authorization header."""
    scheme, _, token = (headers.get("Authorization") or "").partition(" ")
    return token if scheme.lower() == "bearer" else None
