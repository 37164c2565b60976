"""What clients see from the controller, asked of a real HTTP server."""

from __future__ import annotations

import contextlib
import gzip
import json
import ssl
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import ClassVar

import pytest

from roles.inventory.secret import Secret
from roles.readiness import reachable
from roles.readiness.subject import Subject


class Server(ThreadingHTTPServer):
    daemon_threads = True
    status = 200
    body = json.dumps({"data": [{"id": "kimi-k2.5"}]}).encode()
    key: str | None = None
    fail_first = 0
    asked = 0
    manner: Callable[[Handler], None] | None = None
    headers: ClassVar[dict[str, str]] = {}


class Handler(BaseHTTPRequestHandler):
    server: Server

    def do_GET(self) -> None:
        self.server.headers = dict(self.headers)
        if self.server.manner is not None:
            self.server.asked += 1
            return self.server.manner(self)
        self.server.asked += 1
        status = self.server.status
        wanted = self.server.key
        if wanted is not None and self.headers.get("Authorization") != f"Bearer {wanted}":
            status = 401
        if self.server.asked <= self.server.fail_first:
            status = 503
        self.send_response(status)
        self.end_headers()
        self.wfile.write(self.server.body if self.path == "/v1/models" else b"?")

    def log_message(self, format: str, *args: object) -> None:
        """Quiet."""


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[Server]:
    monkeypatch.setattr(reachable, "PAUSE_S", 0.01)
    server = Server(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True)
    thread.start()
    yield server
    server.shutdown()
    server.server_close()


def subject(server: Server, **more: str | None) -> Subject:
    where = f"http://127.0.0.1:{server.server_address[1]}/"
    port = server.server_address[1]
    values = {"reachable_at": where, "served_name": "kimi-k2.5", "port": port, **more}
    return Subject(name="kimi", unit="sglang-kimi.service", **values)  # type: ignore[arg-type]


def test_reached(server: Server) -> None:
    found = reachable.reach(subject(server), True)
    assert found is not None and found.ok and server.asked == 1
    assert found.sentence.endswith("/v1/models answers and serves kimi-k2.5")


def test_nothing_is_asked_without_an_address(server: Server) -> None:
    assert reachable.reach(subject(server, reachable_at=None), True) is None
    assert server.asked == 0


def test_the_api_key_is_sent_and_not_shown(server: Server) -> None:
    server.key = "planted-key"
    right = reachable.reach(subject(server, api_key=Secret("planted-key")), True)
    assert right is not None and right.ok
    wrong = reachable.reach(subject(server, api_key=Secret("other-key")), True)
    assert wrong is not None and not wrong.ok and "another api key" in wrong.sentence
    assert "planted-key" not in repr(subject(server, api_key=Secret("planted-key")))


@pytest.mark.parametrize(
    ("shown", "port"),
    [(False, None), (True, 1)],
    ids=["whose port it is was not shown", "another port than the engine's"],
)
def test_plain_http_to_who_knows_whom_is_asked_without_the_key(
    server: Server, shown: bool, port: int | None
) -> None:
    about = subject(server, api_key=Secret("planted-key"))
    about = replace(about, port=port or about.port)
    server.key = "planted-key"
    found = reachable.reach(about, shown)
    assert found is not None and found.ok is False and "https://" in found.sentence
    assert "Authorization" not in server.headers
    server.key = None
    assert reachable.reach(about, shown).ok  # type: ignore[union-attr]


def test_a_certificate_that_is_not_right_gets_no_key(server: Server, tmp_path: Path) -> None:
    certificate = tmp_path / "both.pem"
    subprocess.run(
        [
            *("openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256"),
            *("-nodes", "-days", "1", "-subj", "/CN=127.0.0.1", "-keyout", tmp_path / "k.pem"),
            *("-out", certificate),
        ],
        check=True,
        capture_output=True,
    )
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, tmp_path / "k.pem")
    server.socket = context.wrap_socket(server.socket, server_side=True)
    where = f"https://127.0.0.1:{server.server_address[1]}"
    found = reachable.reach(subject(server, reachable_at=where, api_key=Secret("planted")), True)
    assert found is not None and found.ok is False and "cannot be reached" in found.sentence
    assert server.asked == 0


def says_it_back(handler: Handler) -> None:
    handler.send_response(200)
    handler.end_headers()
    handler.wfile.write(json.dumps({"data": [{"id": handler.headers["Authorization"]}]}).encode())


def is_no_http(handler: Handler) -> None:
    handler.wfile.write(f"{handler.headers['Authorization']}\r\n\r\n".encode())


@pytest.mark.parametrize("manner", [says_it_back, is_no_http])
def test_what_an_answer_says_of_the_key_is_masked(
    server: Server, manner: Callable[[Handler], None]
) -> None:
    server.manner = manner
    found = reachable.reach(subject(server, api_key=Secret("planted-key")), True)
    assert found is not None and found.ok is False and server.headers["Authorization"]
    assert "planted-key" not in found.sentence


def test_without_the_api_key_it_is_not_asked_and_says_why(server: Server) -> None:
    server.key = "planted-key"
    lost = Secret("", missing="environment variable K is not set on the controller")
    found = reachable.reach(subject(server, api_key=lost), True)
    assert found is not None and found.ok is None and server.asked == 0
    assert found.sentence.endswith(
        "cannot be asked without the api key: environment variable K is not set on the controller"
    )
    assert reachable.reach(subject(server, reachable_at=None, api_key=lost), True) is None


def test_the_controllers_proxy_is_not_the_clients(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:1")
    assert reachable.reach(subject(server), True).ok  # type: ignore[union-attr]


def test_tried_again(server: Server) -> None:
    server.fail_first = 2
    assert reachable.reach(subject(server), True).ok  # type: ignore[union-attr]
    server.asked, server.fail_first = 0, 9
    found = reachable.reach(subject(server), True)
    assert found is not None and not found.ok and server.asked == reachable.TRIES


@pytest.mark.parametrize(
    ("status", "body", "said"),
    [
        (502, b"bad gateway", "answers 502"),
        (200, b"<html>welcome</html>", "serves no model, not kimi-k2.5"),
        (200, b'{"data": [{"id": "other\\u001b[2J"}, 7, {}]}', "serves other\\x1b[2J, not kimi"),
        (200, b"[1]", "serves no model"),
        (200, b'{"data": 3}', "serves no model"),
    ],
)
def test_what_else_can_answer_there(server: Server, status: int, body: bytes, said: str) -> None:
    server.status, server.body = status, body
    found = reachable.reach(subject(server), True)
    assert found is not None and not found.ok and said in found.sentence


def trickles(handler: Handler) -> None:
    """A byte of a header now and then, for ever."""
    with contextlib.suppress(OSError):
        handler.wfile.write(b"HTTP/1.1 200 OK\r\nX-A: ")
        while True:
            handler.wfile.write(b"a")
            time.sleep(0.05)


def never_ends(handler: Handler) -> None:
    with contextlib.suppress(OSError):
        handler.wfile.write(b"HTTP/1.1 200 OK\r\n\r\n")
        while True:
            handler.wfile.write(b" " * 65536)


def points_elsewhere(handler: Handler) -> None:
    handler.send_response(302)
    handler.send_header("Location", "/v1/elsewhere")
    handler.end_headers()


def is_compressed(handler: Handler) -> None:
    handler.send_response(200)
    handler.send_header("Content-Encoding", "gzip")
    handler.end_headers()
    handler.wfile.write(gzip.compress(b" " * 2_000_000))


@pytest.mark.parametrize(
    ("manner", "limit_s", "said"),
    [
        (trickles, 0.5, "its answer did not end within 0.5 s"),
        (never_ends, 10.0, "serves no model"),
        (points_elsewhere, 10.0, "answers 302"),
        (is_compressed, 10.0, "serves no model"),
    ],
)
def test_an_answer_has_limits(
    server: Server,
    monkeypatch: pytest.MonkeyPatch,
    manner: Callable[[Handler], None],
    limit_s: float,
    said: str,
) -> None:
    monkeypatch.setattr(reachable, "WHOLE_S", limit_s)
    monkeypatch.setattr(reachable, "TRIES", 1)
    server.manner = manner
    began = time.monotonic()
    found = reachable.reach(subject(server), True)
    assert found is not None and found.ok is False and said in found.sentence
    assert time.monotonic() - began < 15
    assert server.headers["Accept-Encoding"] == "identity"


def test_nobody_there(server: Server) -> None:
    found = reachable.reach(subject(server, reachable_at="http://127.0.0.1:1"), True)
    assert found is not None and not found.ok
    assert "cannot be reached from here" in found.sentence
    assert "Connection refused" in found.sentence and "object at 0x" not in found.sentence
    unknown = reachable.reach(subject(server, reachable_at="http://no-such-host.invalid:1"), True)
    assert unknown is not None and "object at 0x" not in unknown.sentence
