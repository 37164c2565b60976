"""The HTTP endpoints, with the answers and the key rules that were measured."""

from __future__ import annotations

import json
import queue
import time
from collections.abc import Iterator
from typing import Any

from sglang._standin import answers, options
from sglang._standin.log import VERSION
from sglang._standin.manager import Manager
from sglang._standin.shared.http_server import Answer, Request, answer, bearer
from sglang.version import __version__

OPEN = ("/health", "/ready", "/metrics")
DEPRECATED = {"/get_model_info": "/model_info", "/get_server_info": "/server_info"}
EMPTY: tuple[str, bytes] = ("", b"")


class Routes:
    """All endpoints over one manager."""

    def __init__(self, manager: Manager, config: dict[str, Any], tokens: int) -> None:
        self.manager = manager
        self.args = manager.args
        self.config = config
        self.tokens = tokens
        self.created = int(time.time())

    def route(self, request: Request) -> Answer:
        path = request.path
        key, admin = self.args.api_key, self.args.admin_api_key
        if path == "/flush_cache" and admin:
            key = admin
        if key and not path.startswith(OPEN) and bearer(request.headers) != key:
            return answer(401, {"error": "Unauthorized"})
        if path in DEPRECATED and VERSION >= (0, 5, 20):
            self.manager.log.line(
                f"Endpoint '{path}' is deprecated and will be removed in a future version. "
                f"Please use '{DEPRECATED[path]}' instead.",
                "warning",
            )
        path = DEPRECATED.get(path, path)
        if request.method == "POST":
            return self._post(path, request)
        return self._get(path)

    def _get(self, path: str) -> Answer:
        manager = self.manager
        if path in ("/health", "/health_generate"):
            return (manager.health(), *EMPTY)
        if path == "/ping" or (path == "/ready" and VERSION >= (0, 5, 20)):
            up = manager.status == "Up" and not manager.stopping
            return (200 if up else 503, *EMPTY)
        if path == "/v1/models":
            return answer(200, {"object": "list", "data": [self._model()]})
        if path == "/model_info":
            return answer(200, self._model_info())
        if path == "/server_info":
            state = manager.info()
            document = {**self.args.items(), "internal_states": [state], "version": __version__}
            return answer(200, {**document, "max_total_num_tokens": self.tokens})
        if path == "/metrics" and self.args.enable_metrics:
            return 200, "text/plain; version=0.0.4; charset=utf-8", self._metrics().encode()
        return answer(404, {"detail": "Not Found"})

    def _post(self, path: str, request: Request) -> Answer:
        if path in ("/freeze_gc", "/flush_cache"):
            return 200, "text/plain; charset=utf-8", b"Cache flushed.\n"
        if path not in ("/generate", "/v1/chat/completions", "/v1/completions"):
            return answer(404, {"detail": "Not Found"})
        try:
            body = request.json()
        except ValueError as error:
            return self._error(400, str(error))
        if options.fault()[0] == "warmup-failed" and self.manager.status == "Starting":
            return self._error(500, "Internal Server Error")
        return self._generate(body) if path == "/generate" else self._openai(path, body)

    def _error(self, status: int, message: str) -> Answer:
        error = {"object": "error", "message": message, "type": "BadRequest", "code": status}
        return answer(status, error if status == 400 else {"error": error})

    def _model(self) -> dict[str, Any]:
        name = self.args.served_model_name
        return {
            "id": name,
            "object": "model",
            "created": self.created,
            "owned_by": "sglang",
            "root": name,
            "parent": None,
            "max_model_len": self.args.context_length
            or self.config.get("max_position_embeddings", 2048),
        }

    def _model_info(self) -> dict[str, Any]:
        return {
            "model_path": self.args.model_path,
            "tokenizer_path": self.args.tokenizer_path,
            "is_generation": True,
            "served_model_name": self.args.served_model_name,
            "weight_version": "default",
            "load_format": self.args.load_format or "auto",
            "model_type": self.config.get("model_type"),
            "architectures": self.config.get("architectures"),
        }

    def _metrics(self) -> str:
        counters = self.manager.counters
        label = f'{{model_name="{self.args.served_model_name}"}}'
        rows = {
            "sglang:num_running_reqs": len(self.manager.remaining()),
            "sglang:num_queue_reqs": 0,
            "sglang:token_usage": 0.0,
            "sglang:gen_throughput": 0.0,
            "sglang:prompt_tokens_total": counters["prompt"],
            "sglang:generation_tokens_total": counters["generation"],
            "sglang:num_requests_total": counters["requests"],
        }
        if counters["spec_steps"]:
            rows["sglang:spec_accept_length"] = counters["spec"] / counters["spec_steps"]
        return "".join(f"{name}{label} {value}\n" for name, value in rows.items())

    def _start(self, body: dict[str, Any], limit: int, ignore_eos: bool) -> Generation:
        prompt = answers.prompt_text(body)
        said = answers.words(prompt, limit, ignore_eos)
        size = answers.tokens(prompt)
        rid, pieces = self.manager.submit(said, size, max(1, limit))
        return Generation(self.manager, rid, pieces, size)

    def _generate(self, body: dict[str, Any]) -> Answer:
        sampling = body.get("sampling_params") or {}
        limit = int(sampling.get("max_new_tokens", 128))
        run = self._start(body, limit, bool(sampling.get("ignore_eos")))
        if body.get("stream"):
            parts = ({"text": run.text, "meta_info": run.meta()} for _ in run.pieces())
            return 200, "text/event-stream; charset=utf-8", _events(parts)
        run.finish()
        return answer(200, {"text": run.text, "meta_info": run.meta()})

    def _openai(self, path: str, body: dict[str, Any]) -> Answer:
        name = self.args.served_model_name
        if "messages" not in body and path.endswith("chat/completions"):
            return self._error(400, "1 validation error: messages: Field required")
        limit = int(body.get("max_completion_tokens") or body.get("max_tokens") or 128)
        run = self._start(body, limit, bool(body.get("ignore_eos")))
        chat = path.endswith("chat/completions")
        base = {"id": run.rid, "created": int(time.time()), "model": name}
        base["object"] = "chat.completion" if chat else "text_completion"
        if body.get("stream"):
            return 200, "text/event-stream; charset=utf-8", _events(run.chunks(base, chat, body))
        run.finish()
        choice: dict[str, Any] = {"index": 0, "finish_reason": run.reason, "logprobs": None}
        if body.get("return_meta_info"):
            choice["meta_info"] = run.meta()
        if chat:
            choice["message"] = run.message(bool(self.args.reasoning_parser))
        else:
            choice["text"] = run.text
        return answer(200, {**base, "choices": [choice], "usage": run.usage()})


class Generation:
    """One generation as the client sees it."""

    def __init__(
        self, manager: Manager, rid: str, source: queue.Queue[dict[str, Any]], prompt: int
    ) -> None:
        self.manager = manager
        self.rid = rid
        self.text = ""
        self.reason: str | None = None
        self.stats: dict[str, Any] = {}
        self.prompt = prompt
        self.begin = time.time()
        self._source = source

    def pieces(self) -> Iterator[str]:
        """The pieces of text as they come; waits for ever when the engine hangs."""
        while self.reason is None:
            message = self._source.get()
            self.text += message["text"]
            self.stats = message["stats"] or self.stats
            self.reason = message["finish"]
            yield message["text"]
        counters = self.manager.counters
        counters["prompt"] += self.prompt
        counters["generation"] += self.stats.get("completion_tokens", 0)
        counters["requests"] += 1
        counters["spec_steps"] += self.stats.get("spec_verify_ct", 0)
        if "spec_verify_ct" in self.stats:
            counters["spec"] += self.stats["completion_tokens"]

    def finish(self) -> None:
        for _ in self.pieces():
            pass

    def usage(self) -> dict[str, int]:
        done = self.stats.get("completion_tokens", 0)
        total = self.prompt + done
        return {"prompt_tokens": self.prompt, "completion_tokens": done, "total_tokens": total}

    def message(self, reasoning: bool) -> dict[str, Any]:
        content = None if reasoning else self.text
        thought = self.text if reasoning else None
        return {"role": "assistant", "content": content, "reasoning_content": thought}

    def meta(self) -> dict[str, Any]:
        """meta_info of the engine's own API: with a drafter, what it was worth."""
        return {
            "id": self.rid,
            "finish_reason": self.reason and {"type": self.reason},
            "prompt_tokens": self.prompt,
            "cached_tokens": 0,
            "weight_version": "default",
            "e2e_latency": time.time() - self.begin,
            **self.stats,
        }

    def chunks(
        self, base: dict[str, Any], chat: bool, body: dict[str, Any]
    ) -> Iterator[dict[str, Any]]:
        """The events of a streamed answer."""
        base = {**base, "object": base["object"] + (".chunk" if chat else "")}
        for piece in self.pieces():
            part: dict[str, Any] = {"delta": {"content": piece}} if chat else {"text": piece}
            yield {**base, "choices": [{"index": 0, "finish_reason": self.reason, **part}]}
        if (body.get("stream_options") or {}).get("include_usage"):
            yield {**base, "choices": [], "usage": self.usage()}


def _events(parts: Iterator[dict[str, Any]]) -> Iterator[bytes]:
    for part in parts:
        yield f"data: {json.dumps(part)}\n\n".encode()
    yield b"data: [DONE]\n\n"
