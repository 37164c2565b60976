"""The api key goes to the engine's own processes alone, whoever else answers on its port."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, replace
from pathlib import Path

import pytest

from sglangctl.engine import peer
from sglangctl.engine.accept_length import measure
from sglangctl.engine.generate import Generation, generate
from sglangctl.engine.http import Endpoint, ask
from sglangctl.engine.readiness_facts import gather
from sglangctl.masking.masker import Masker
from sglangctl.proc import sockets
from sglangctl.state.config import EngineConfig, Readiness
from tests.support.http_engine import Engine, serving
from tests.support.tools import leave_out

KEY = "sk-planted-0123456789"
STRANGER = Path(__file__).parents[3] / "support" / "stranger.py"


@contextmanager
def stranger(record: Path, host: str = "127.0.0.1", *more: str) -> Iterator[tuple[int, int]]:
    """(pid, port) of another process's server that keeps all that it gets, and echoes it."""
    with subprocess.Popen(
        [sys.executable, STRANGER, host, "0", record, *more], stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        try:
            yield process.pid, int(process.stdout.readline())
        finally:
            process.kill()


def where(port: int, *pids: int, host: str = "127.0.0.1", tls: bool = False) -> Endpoint:
    return Endpoint(host, port, tls, KEY, ours=lambda: list(pids), mask=Masker([KEY]).mask)


def config(port: int) -> EngineConfig:
    return EngineConfig(
        name="a", unit="sglang-a.service", user="u", port=port, listen="127.0.0.1", model="/m",
        served_name="tiny",
    )  # fmt: skip


@pytest.mark.parametrize("host", ["127.0.0.1", "::1"])
def test_a_stranger_is_asked_without_the_key(tmp_path: Path, host: str) -> None:
    record = tmp_path / "record"
    with stranger(record, host) as (pid, port):
        for path in ("/health", "/v1/models"):
            assert ask(where(port, os.getpid(), host=host), path, 5).status == 200
        generate(where(port, os.getpid(), host=host), "tiny", Readiness(), 5)
        text = record.read_text()
        assert text.count("GET /") == 2 and "POST /v1/chat" in text and KEY not in text
        # The same server as the engine's own process: the key is what it is asked with.
        assert ask(where(port, pid, host=host), "/v1/models", 5).status == 200
    assert f"Authorization: Bearer {KEY}" in record.read_text()


def test_a_stranger_is_asked_without_the_key_for_the_accept_length(tmp_path: Path) -> None:
    """All ways of measuring: the counters, the chat answer, /generate; and the chat streams."""
    record = tmp_path / "record"
    for first in (Generation(200, None, 0.1), Generation(200, None, 0.1, tokens=9, verify_calls=3)):
        with stranger(record) as (pid, port):
            for ours, given in ((os.getpid(), False), (pid, True)):
                record.unlink(missing_ok=True)
                measure(where(port, ours), "tiny", Readiness(), 5, first)
                text = record.read_text()
                paths = ("/metrics", "/v1/chat/completions", "/generate")
                asked = paths[1:2] if first.verify_calls else paths
                assert all(f" {path} HTTP" in text for path in asked), text
                assert (KEY in text) == given


def test_a_stranger_with_tls_neither(tmp_path: Path) -> None:
    certificate = tmp_path / "both.pem"
    subprocess.run(
        [
            *("openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256"),
            *("-nodes", "-days", "1", "-subj", "/CN=h", "-keyout", certificate),
            *("-out", tmp_path / "certificate.pem"),
        ],
        check=True,
        capture_output=True,
    )
    with open(certificate, "ab") as file:
        file.write((tmp_path / "certificate.pem").read_bytes())
    record = tmp_path / "record"
    with stranger(record, "127.0.0.1", str(certificate)) as (pid, port):
        assert ask(where(port, os.getpid(), tls=True), "/v1/models", 5).status == 200
        assert KEY not in record.read_text()
        assert ask(where(port, pid, tls=True), "/v1/models", 5).status == 200
    assert KEY in record.read_text()


def test_an_engine_s_dual_stack_socket_is_its_own() -> None:
    with socket.socket(socket.AF_INET6) as server:
        try:
            server.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
            server.bind(("::", 0))
        except OSError:
            leave_out("no IPv6 here")
        server.listen()
        with socket.create_connection(("127.0.0.1", server.getsockname()[1])) as connection:
            assert peer.is_ours(connection, lambda: [os.getpid()])
            assert not peer.is_ours(connection, lambda: [1])


@pytest.fixture
def waiting() -> Iterator[tuple[socket.socket, socket.socket]]:
    """A listening socket of ours, and a connection to it that nobody has accepted."""
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        server.listen()
        with socket.create_connection(server.getsockname()) as connection:
            yield server, connection


def test_not_accepted_yet_the_listener_s_owner_decides(
    waiting: tuple[socket.socket, socket.socket],
) -> None:
    server, connection = waiting
    end = sockets.far_end(connection)
    assert end is not None and (end.inode, end.state) == (0, sockets.ESTABLISHED)
    assert peer.is_ours(connection, lambda: [os.getpid()])
    assert not peer.is_ours(connection, lambda: [1]) and not peer.is_ours(connection, tuple)
    accepted, _ = server.accept()
    with accepted:
        assert peer.is_ours(connection, lambda: [os.getpid()])
        server.close()
        assert peer.is_ours(connection, lambda: [os.getpid()]), "the listener decides no more"


def test_accepted_and_let_go_of_it_is_nobody_s(
    waiting: tuple[socket.socket, socket.socket],
) -> None:
    server, connection = waiting
    server.accept()[0].close()
    end = sockets.far_end(connection)
    assert end is None or (end.inode == 0 and end.state != sockets.ESTABLISHED)
    assert not peer.is_ours(connection, lambda: [os.getpid()])


def test_a_stranger_s_connection_does_not_become_ours_when_we_listen_later(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The race: the connection waits at the stranger, who accepts it and closes its listener; the
    engine binds; then the listeners are looked at."""
    with socket.socket() as theirs, socket.socket() as ours:
        theirs.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        ours.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        theirs.bind(("127.0.0.1", 0))
        theirs.listen()
        address = theirs.getsockname()
        with socket.create_connection(address) as connection:
            look = sockets.listeners_at
            kept = []

            def listeners_at(host: str, port: int) -> list[sockets.Listener]:
                if not kept:
                    kept.append(theirs.accept()[0])
                    theirs.close()
                    ours.bind(address)
                    ours.listen()
                return look(host, port)

            monkeypatch.setattr(sockets, "listeners_at", listeners_at)
            # All sockets here are of one process: the engine's is the one that listens now.
            listening = lambda inodes, pids: {i: [1] if _listens(i, port) else [] for i in inodes}  # noqa: E731
            port = address[1]
            monkeypatch.setattr(sockets, "holders_of", listening)
            assert not peer.is_ours(connection, lambda: [1])
            kept[0].close()


def _listens(inode: int, port: int) -> bool:
    return inode in {item.inode for item in sockets.listeners(port=port)}


def test_the_number_of_a_process_that_ended_is_no_proof(
    waiting: tuple[socket.socket, socket.socket],
) -> None:
    _, connection = waiting
    answers: Iterator[list[int]] = iter([[os.getpid()], []])
    pids: Callable[[], list[int]] = lambda: next(answers)  # noqa: E731
    assert not peer.is_ours(connection, pids)


def test_the_proof_holds_no_secret_that_an_answer_told(tmp_path: Path) -> None:
    """An engine (or whoever answers for it) that says the key back, in every place that has text."""
    said = Engine(
        model=KEY, words=["it is ", KEY[:9], KEY[9:]], info={"speculative_algorithm": KEY}
    )
    with serving(said) as engine:
        found = gather(
            replace(config(engine.port), readiness=Readiness(expect="no such words")),
            where(engine.port, os.getpid()),
            os.getpid(),
            [os.getpid()],
        )
        said.chat_status = 500
        assert found.generation is not None and "***" in found.generation.text
        proof = asdict(replace(found, models=None))
    assert KEY not in str(proof), proof
    assert found.facts.served_models == ("***",)


def test_an_error_s_text_is_masked_before_it_is_cut() -> None:
    with serving(Engine(chat_status=200, piece=b'{"error": {"message": "%s%s"}}' % (
        b"x" * 190, KEY.encode()))) as engine:  # fmt: skip
        made = generate(where(engine.port, os.getpid()), "tiny", Readiness(), 5)
    assert made.fault is not None and KEY[:6] not in made.fault
    assert KEY not in made.body
