"""A real HTTP server with SGLang's manners, for tests: each answer is a function one can replace."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

Answer = tuple[int, Any]


@dataclass
class Engine:
    """What the server says; change it while it runs."""

    model: str = "tiny"
    api_key: str | None = None
    health: int = 200
    health_delay_s: float = 0.0
    words: list[str] = field(default_factory=lambda: ["Paris", " is", " the", " capital", "."])
    reasoning: list[str] = field(default_factory=list)
    token_delay_s: float = 0.0
    tokens: int | None = None
    version: str = "0.5.23"
    verify_calls: int | None = None
    info: dict[str, Any] = field(default_factory=lambda: {"speculative_algorithm": None})
    metrics: Callable[[], str] | None = None
    chat_status: int = 200
    trickle: bool = False
    piece: bytes | None = None
    """One more piece of the stream's data, as it is."""
    compiles: Callable[[dict[str, Any]], float] | None = None
    """Seconds before the first piece of the answer to a chat request."""
    refuses: Callable[[dict[str, Any]], str | None] | None = None
    """Why a chat request is answered 400."""
    context: int | None = None
    model_info: dict[str, Any] | None = None
    template: bool = True
    """Whether there is a chat template; without one a chat is refused as 0.5.23 does."""
    vectors: Callable[[int], Any] = lambda number: [0.1 * number, 0.2, 0.3]
    """The vector of the n-th text of a request (an embedding, a score)."""
    answers: Callable[[str, dict[str, Any]], Answer | None] = lambda path, document: None
    """The answer to a POST that is not streamed; None: the one below."""
    requests: list[tuple[str, dict[str, Any] | None, dict[str, str]]] = field(default_factory=list)
    in_flight: int = 0
    most_in_flight: int = 0
    port: int = 0

    def paths(self) -> list[str]:
        return [path for path, _, _ in self.requests]


@contextmanager
def serving(engine: Engine, port: int = 0) -> Iterator[Engine]:
    """Run `engine` on 127.0.0.1; its port is engine.port."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            self._serve(None)

        def do_POST(self) -> None:
            length = int(self.headers.get("Content-Length", 0))
            self._serve(json.loads(self.rfile.read(length)))

        def _serve(self, document: dict[str, Any] | None) -> None:
            engine.requests.append((self.path, document, dict(self.headers)))
            open_to_all = self.path.startswith(("/health", "/metrics")) or not engine.api_key
            if not open_to_all and self.headers.get("Authorization") != f"Bearer {engine.api_key}":
                self._answer(401, {"error": "Unauthorized"})
                return
            engine.in_flight += 1
            engine.most_in_flight = max(engine.most_in_flight, engine.in_flight)
            try:
                self._route(document)
            except (BrokenPipeError, ConnectionResetError):
                self.close_connection = True
            finally:
                engine.in_flight -= 1

        def _route(self, document: dict[str, Any] | None) -> None:
            plain = document is not None and not document.get("stream")
            special = engine.answers(self.path, document) if plain and document else None
            if special is not None:
                self._answer(*special)
            elif self.path == "/health":
                time.sleep(engine.health_delay_s)
                self._answer(engine.health, b"")
            elif self.path == "/v1/models":
                model: dict[str, Any] = {"id": engine.model, "root": engine.model}
                if engine.context is not None:
                    model["max_model_len"] = engine.context
                self._answer(200, {"data": [model]})
            elif self.path == "/server_info":
                self._answer(200, engine.info)
            elif self.path == "/model_info" and engine.model_info is not None:
                self._answer(200, engine.model_info)
            elif self.path == "/v1/embeddings" and document is not None:
                found = [{"embedding": engine.vectors(n)} for n in range(len(document["input"]))]
                self._answer(200, {"data": found, "usage": {"prompt_tokens": 9}})
            elif self.path == "/classify" and document is not None:
                texts = range(len(document["text"]))
                self._answer(200, [{"embedding": engine.vectors(n)} for n in texts])
            elif self.path == "/v1/completions" and document is not None:
                self._chat(document)
            elif self.path == "/metrics" and engine.metrics is not None:
                self._answer(200, engine.metrics().encode())
            elif self.path == "/v1/chat/completions" and document is not None:
                self._chat(document)
            elif self.path == "/generate" and document is not None:
                self._answer(200, {"text": "x", "meta_info": self._meta(("0.5.9", "0.5.16"))})
            else:
                self._answer(404, {"detail": "Not Found"})

        def _count(self) -> int:
            return engine.tokens or len(engine.words) + len(engine.reasoning)

        def _meta(self, versions: tuple[str, ...]) -> dict[str, Any]:
            meta: dict[str, Any] = {"completion_tokens": self._count()}
            if engine.verify_calls and engine.version in versions:
                meta["spec_verify_ct"] = engine.verify_calls
                meta["spec_accept_length"] = self._count() / engine.verify_calls
            return meta

        def _chat(self, document: dict[str, Any]) -> None:
            if engine.chat_status != 200:
                self._answer(engine.chat_status, {"error": {"message": "no chat template"}})
                return
            chat = self.path == "/v1/chat/completions"
            if chat and not engine.template:
                words = (
                    "Cannot use chat template functions because tokenizer.chat_template is not set"
                )
                self._answer(400, {"object": "error", "message": words})
                return
            refusal = engine.refuses(document) if engine.refuses else None
            if refusal:
                self._answer(400, {"object": "error", "message": refusal})
                return
            if not document.get("stream"):
                choice: dict[str, Any] = {"message": {"content": "".join(engine.words)}}
                if document.get("return_meta_info") and engine.version == "0.5.16":
                    choice["meta_info"] = self._meta(("0.5.16",))
                usage = {"completion_tokens": self._count()}
                self._answer(200, {"choices": [choice], "usage": usage})
                return
            self.send_response(200)
            self.send_header("Content-Type", "text/event-stream")
            self.send_header("Transfer-Encoding", "chunked")
            self.end_headers()
            pieces = [("reasoning_content", word) for word in engine.reasoning]
            pieces += [("content", word) for word in engine.words]
            if engine.compiles is not None:
                time.sleep(engine.compiles(document))
            self._event({"choices": [{"delta": {"role": "assistant", "content": ""}}]})
            for key, word in pieces:
                time.sleep(engine.token_delay_s)
                part: dict[str, Any] = {"delta": {key: word}} if chat else {"text": word}
                self._event({"choices": [{"index": 0, **part}]})
            while engine.trickle:
                time.sleep(0.05)
                self._chunk(b": keep-alive\n")
            if engine.piece is not None:
                self._chunk(b"data: " + engine.piece + b"\n\n")
            asked = document.get("return_spec_tokens_details") and engine.verify_calls
            if asked and engine.version == "0.5.23":
                details = {"spec_tokens_details": self._meta(("0.5.23",))}
                self._event({"choices": [], "sglext": details})
            if document.get("stream_options", {}).get("include_usage"):
                texts = [one["content"] for one in document.get("messages", [])]
                asked = sum(len(text.split()) for text in [*texts, document.get("prompt", "")])
                usage = {"completion_tokens": self._count(), "prompt_tokens": asked}
                self._event({"choices": [], "usage": usage})
            self._chunk(b"data: [DONE]\n\n")
            self._chunk(b"")

        def _event(self, document: dict[str, Any]) -> None:
            self._chunk(b"data: " + json.dumps(document).encode() + b"\n\n")

        def _chunk(self, data: bytes) -> None:
            self.wfile.write(b"%x\r\n%s\r\n" % (len(data), data))
            self.wfile.flush()

        def _answer(self, status: int, body: Any) -> None:
            data = body if isinstance(body, bytes) else json.dumps(body).encode()
            self.send_response(status)
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        def log_message(self, *args: Any) -> None:
            pass

    class Server(ThreadingHTTPServer):
        daemon_threads = True

        def handle_error(self, request: Any, client_address: Any) -> None:
            pass  # clients that go away in the middle are what some tests are about

    server = Server(("127.0.0.1", port), Handler)
    engine.port = server.server_address[1]
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
    thread.start()
    try:
        yield engine
    finally:
        engine.trickle = False
        server.shutdown()
        server.server_close()
        thread.join()
