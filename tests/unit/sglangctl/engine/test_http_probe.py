from __future__ import annotations

import json
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from sglangctl.engine.generate import generate
from sglangctl.engine.http import BODY_LIMIT, Endpoint, Prober, ask, endpoint, reachable
from sglangctl.state.config import EngineConfig, Readiness
from sglangctl.state.paths import Paths
from sglangctl.switch import recorded_unit
from tests.support.http_engine import Engine, serving
from tests.support.waiting import until

CONFIG = EngineConfig(
    name="a", unit="sglang-a.service", user="sglang", port=8000, listen="0.0.0.0",
    model="/m", served_name="tiny",
)  # fmt: skip


def wait_for(prober: Prober, seconds: float = 5.0) -> object:
    return until(prober.poll, seconds)


def test_status_and_body() -> None:
    with serving(Engine(health=503)) as engine:
        where = Endpoint("127.0.0.1", engine.port)
        assert ask(where, "/health", 5).status == 503
        assert ask(where, "/v1/models", 5).json() == {"data": [{"id": "tiny", "root": "tiny"}]}


def test_the_limit_is_for_the_whole_answer() -> None:
    with serving(Engine(health_delay_s=3.0)) as engine:
        began = time.monotonic()
        answer = ask(Endpoint("127.0.0.1", engine.port), "/health", 0.5)
        assert time.monotonic() - began < 2.0
    assert (answer.status, answer.error) == (None, "TimeoutError")
    assert 0.4 <= answer.seconds < 2.0


def test_a_server_that_accepts_and_says_nothing() -> None:
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        server.listen()
        answer = ask(Endpoint("127.0.0.1", server.getsockname()[1]), "/health", 0.4)
    assert (answer.status, answer.error) == (None, "TimeoutError")


@pytest.mark.parametrize(
    ("said", "status", "error"),
    [
        (b"", None, "RemoteDisconnected"),
        (b"SSH-2.0-OpenSSH_9.2\r\n", None, "BadStatusLine"),
        (b"HTTP/1.1 200 OK\r\nConte", 200, None),  # the status is there, whatever lacks
        (b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\n{}", 200, None),
    ],
)
def test_a_server_that_is_no_http_server(
    said: bytes, status: int | None, error: str | None
) -> None:
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        server.listen()

        def serve() -> None:
            connection, _ = server.accept()
            connection.recv(4096)
            connection.sendall(said)
            connection.close()

        thread = threading.Thread(target=serve)
        thread.start()
        answer = ask(Endpoint("127.0.0.1", server.getsockname()[1]), "/health", 5)
        thread.join()
    assert (answer.status, answer.error) == (status, error)


def test_one_question_in_flight_at_a_time() -> None:
    with serving(Engine(health_delay_s=0.3)) as engine:
        where = Endpoint("127.0.0.1", engine.port)
        woken = threading.Event()
        prober = Prober(woken.set)
        assert prober.start(lambda: ask(where, "/health", 5))
        assert not prober.start(lambda: ask(where, "/health", 5))
        wait_for(prober)
        assert woken.is_set()
        assert prober.start(lambda: ask(where, "/health", 5))
        wait_for(prober)
        prober.close()
    assert engine.paths() == ["/health", "/health"]
    assert engine.most_in_flight == 1


def test_a_defect_in_a_question_is_an_answer_and_the_prober_goes_on() -> None:
    prober = Prober()

    def broken() -> object:
        raise KeyError("x")

    assert prober.start(broken)
    assert isinstance(wait_for(prober), KeyError)
    assert prober.start(lambda: "fine")
    assert wait_for(prober) == "fine"
    prober.close()


def seen(where: Endpoint) -> tuple[Any, ...]:
    return where.host, where.port, where.tls, where.api_key


def test_endpoint_from_the_live_release(tmp_path: Path) -> None:
    paths = Paths(tmp_path)
    release = paths.current("a")
    release.mkdir(parents=True)
    assert seen(endpoint(CONFIG, paths, lambda: [])) == ("127.0.0.1", 8000, False, None)
    lines = ['host: "0.0.0.0"', f"api-key: {json.dumps('sk-planted')}", 'ssl-certfile: "/c"']
    (release / "engine.yaml").write_text("\n".join(lines))
    found = endpoint(replace(CONFIG, listen="::"), paths, lambda: [])
    assert seen(found) == ("::1", 8000, True, "sk-planted")
    assert found.mask("Bearer sk-planted") == "Bearer ***"


def test_addresses() -> None:
    assert reachable("10.0.0.5") == "10.0.0.5"
    assert reachable("0.0.0.0") == "127.0.0.1"


def trickling(beginning: bytes, drop: bytes, pause_s: float = 0.02) -> Callable[..., None]:
    """Serve one connection: `beginning`, then `drop` for ever."""

    def serve(server: socket.socket, over: threading.Event) -> None:
        connection, _ = server.accept()
        with connection, suppress(OSError):
            connection.recv(4096)
            connection.sendall(beginning)
            while not over.wait(pause_s):
                connection.sendall(drop)

    return serve


@contextmanager
def endless(beginning: bytes, drop: bytes, pause_s: float = 0.02) -> Iterator[int]:
    """The port of such a server."""
    over = threading.Event()
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        server.listen()
        thread = threading.Thread(
            target=trickling(beginning, drop, pause_s), args=(server, over), daemon=True
        )
        thread.start()
        yield server.getsockname()[1]
        over.set()
    thread.join(5)


OK = b"HTTP/1.1 200 OK\r\n"
CHUNKED = OK + b"Transfer-Encoding: chunked\r\n\r\n"
TRICKLES = {
    "status line": (b"HTTP/1.1 200 ", b"a"),
    "header": (OK + b"X-A: ", b"a"),
    "continue": (b"", b"HTTP/1.1 100 Continue\r\n\r\n"),
    "chunk size": (CHUNKED + b"00", b"0"),
    "chunk": (CHUNKED + b"fffff\r\n", b"a"),
    "line": (OK + b"\r\ndata: ", b"a"),
    "trailer": (CHUNKED + b"0\r\nX: ", b"a"),
}


def in_time(question: Callable[[], Any], limit_s: float) -> Any:
    """What `question` answers within the limit: a thread, so that a test fails, not hangs."""
    answers: list[Any] = []
    thread = threading.Thread(target=lambda: answers.append(question()), daemon=True)
    thread.start()
    thread.join(limit_s)
    assert answers, f"no answer within {limit_s} s"
    return answers[0]


@pytest.mark.parametrize("place", TRICKLES)
def test_a_server_that_trickles_anywhere_ends_at_the_limit(place: str) -> None:
    with endless(*TRICKLES[place]) as port:
        answer = in_time(lambda: ask(Endpoint("127.0.0.1", port), "/health", 0.2), 3)
    assert (answer.status, answer.error) == (None, "TimeoutError")
    with endless(*TRICKLES[place]) as port:
        where = Endpoint("127.0.0.1", port)
        made = in_time(lambda: generate(where, "tiny", Readiness(), 0.2), 3)
    assert (made.status, made.error, made.text_ok) == (None, "TimeoutError", False)
    with endless(*TRICKLES[place]) as port:
        assert in_time(lambda: recorded_unit.serves([port], 0.2), 3)[1] is None


def test_an_endless_answer_ends_at_the_limit_of_bytes() -> None:
    lines = b"100000\r\n" + (b":" + b"x" * 65534 + b"\n") * 16 + b"\r\n"
    with endless(CHUNKED, lines, 0.0) as port:
        where = Endpoint("127.0.0.1", port)
        made = in_time(lambda: generate(where, "tiny", Readiness(), 60), 30)
    assert (made.error, made.text_ok) == ("AnswerTooLong", False)


def test_a_chunk_of_a_negative_size_does_not_fill_the_memory() -> None:
    with endless(CHUNKED + b"-5\r\n", b"a" * (1 << 20), 0.0) as port:
        answer = in_time(lambda: ask(Endpoint("127.0.0.1", port), "/health", 60), 30)
    assert len(answer.body) <= BODY_LIMIT
    with endless(CHUNKED + b"-5\r\n", b"a" * (1 << 20), 0.0) as port:
        where = Endpoint("127.0.0.1", port)
        made = in_time(lambda: generate(where, "tiny", Readiness(), 60), 30)
    assert made.error in ("AnswerTooLong", "ValueError", "LineTooLong") and made.text_ok is False


def test_served_models_of_another_server() -> None:
    with serving(Engine(model="theirs")) as engine:
        assert recorded_unit.serves([engine.port]) == ([engine.port], ("theirs",))
    with serving(Engine(api_key="sk-planted")) as engine:
        assert recorded_unit.serves([engine.port]) == ([engine.port], None)
