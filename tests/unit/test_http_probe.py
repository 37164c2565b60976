from __future__ import annotations

import json
import socket
import threading
import time
from dataclasses import replace
from pathlib import Path

import pytest

from sglangctl.config import EngineConfig
from sglangctl.http_probe import Endpoint, Prober, ask, endpoint, reachable
from sglangctl.paths import Paths
from tests.unit.http_engine import Engine, serving

CONFIG = EngineConfig(
    name="a", unit="sglang-a.service", user="sglang", port=8000, listen="0.0.0.0",
    model="/m", served_name="tiny",
)  # fmt: skip


def wait_for(prober: Prober, seconds: float = 5.0) -> object:
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        answer = prober.poll()
        if answer is not None:
            return answer
        time.sleep(0.01)
    raise AssertionError("no answer came")


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


@pytest.mark.parametrize("said", [b"", b"SSH-2.0-OpenSSH_9.2\r\n", b"HTTP/1.1 200 OK\r\nConte"])
def test_a_server_that_is_no_http_server(said: bytes) -> None:
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
    if said.startswith(b"HTTP"):
        assert answer.status == 200 or answer.error
    else:
        assert answer.status is None and answer.error


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


def test_endpoint_from_the_live_release(tmp_path: Path) -> None:
    paths = Paths(tmp_path)
    release = paths.current("a")
    release.mkdir(parents=True)
    assert endpoint(CONFIG, paths) == Endpoint("127.0.0.1", 8000)
    lines = ['host: "0.0.0.0"', f"api-key: {json.dumps('sk-planted')}", 'ssl-certfile: "/c"']
    (release / "engine.yaml").write_text("\n".join(lines))
    found = endpoint(replace(CONFIG, listen="::"), paths)
    assert found == Endpoint("::1", 8000, tls=True, api_key="sk-planted")
    assert found.headers() == {"Authorization": "Bearer sk-planted"}


def test_addresses() -> None:
    assert reachable("10.0.0.5") == "10.0.0.5"
    assert reachable("0.0.0.0") == "127.0.0.1"
