"""One real generation through the chat template: is the text sane, how fast did it come?

A port, a log line and /health can all be right while the model returns noise (a lost shard, a
broken kernel), so `ready` rests on a generation. It is asked as clients ask: /v1/chat/completions,
streamed, with the model's own sampling defaults.
"""

from __future__ import annotations

import http.client
import time
from collections.abc import Callable, Mapping
from contextlib import closing
from dataclasses import dataclass, replace
from typing import Any

from sglangctl.engine.http import Endpoint, Exchange, error_name, loads
from sglangctl.state.config import Readiness
from sglangctl.util.values import mapping, number, rounded, whole

CHAT = "/v1/chat/completions"
BODY_KEPT = 2000
"""Bytes of the raw answer that the journal keeps."""
TEXT_KEPT = 500
REPEATS = 8
"""A text that is one short piece repeated this often is a broken model (NaN logits give "!!!!")."""
PIECE = 24
"""Longest such piece, in characters: one token is rarely longer."""


@dataclass(frozen=True)
class Generation:
    """What came back. Unknown is None; `fault` is why `text_ok` is False."""

    status: int | None
    error: str | None
    seconds: float
    ttft_s: float | None = None
    """From the request to the first piece of text, reasoning included."""
    tokens: int | None = None
    tokens_per_s: float | None = None
    """Of the decoding alone: tokens after the first piece by the time that they took."""
    text: str = ""
    """Reasoning and content, in the order of their coming."""
    body: str = ""
    text_ok: bool | None = None
    fault: str | None = None
    accept_length: float | None = None
    """Of this request, where the version reports it in the stream (0.5.23 does, 0.5.16 not)."""
    verify_calls: int | None = None
    prompt_tokens: int | None = None
    """As the engine counted them."""
    times: tuple[float, ...] = ()
    """When its pieces came, seconds after the request."""

    def event(self) -> dict[str, Any]:
        """The fields of a `generate` event."""
        return {
            "status": self.status,
            "error": self.error,
            "seconds": round(self.seconds, 3),
            "ttft_s": rounded(self.ttft_s),
            "tokens": self.tokens,
            "tokens_per_s": rounded(self.tokens_per_s),
            "text": self.text[:TEXT_KEPT],
            "text_ok": self.text_ok,
            "fault": self.fault,
            "body": self.body,
        }


def generate(
    where: Endpoint, model: str, readiness: Readiness, timeout_s: float, prompt: str | None = None
) -> Generation:
    """Ask once; never raises for what the network or the server does.

    `prompt` None: the inventory's, with its expected answer; any other prompt expects none.
    """
    document = {
        "model": model,
        "messages": [{"role": "user", "content": readiness.prompt if prompt is None else prompt}],
        "max_tokens": readiness.max_tokens,
        # 0.5.23 answers with the accept length of this very request, 0.5.16 ignores the key.
        "return_spec_tokens_details": True,
    }
    return with_text(stream_of(where, document, timeout_s), readiness, prompt)


def with_text(found: Generation, readiness: Readiness, prompt: str | None = None) -> Generation:
    """An answer whose text is judged, too."""
    if found.fault is not None:
        return found
    faulty = fault_of(found.text) or _unexpected(found.text, readiness, prompt)
    return replace(found, text_ok=faulty is None, fault=faulty)


def stream_of(
    where: Endpoint, request: Mapping[str, Any], timeout_s: float, path: str = CHAT
) -> Generation:
    """Stream the answer to any request; its text is not judged (text_ok None) unless there is a
    fault before that: no answer, a status that is not 200, an error in the stream.

    Never raises for what the network or the server does.
    """
    document = {**request, "stream": True, "stream_options": {"include_usage": True}}
    stream = Stream(where.mask)
    began = time.monotonic()
    try:
        with closing(Exchange(where, timeout_s)) as talk:
            status = talk.send(path, document)
            if status != 200:
                raw = talk.read()
                stream.keep(raw)
                fault = f"{path} answered {status}: {message_of(raw, where.mask)}"
                seconds = talk.seconds()
                return Generation(
                    status, None, seconds, body=stream.body(), text_ok=False, fault=fault
                )
            for line in talk.lines():
                stream.feed(line, talk.seconds())
            seconds = talk.seconds()
    except (OSError, http.client.HTTPException, ValueError) as error:
        name = error_name(error)
        seconds = time.monotonic() - began
        fault = f"no complete answer within {seconds:.1f} s ({name})"
        return Generation(
            None, name, seconds, text=stream.text, body=stream.body(), text_ok=False, fault=fault
        )
    return Generation(
        status=status,
        error=None,
        seconds=seconds,
        ttft_s=stream.first_s,
        tokens=stream.tokens(),
        tokens_per_s=stream.tokens_per_s(),
        text=stream.text,
        body=stream.body(),
        text_ok=None if stream.error is None else False,
        fault=stream.error,
        accept_length=stream.accept_length,
        verify_calls=stream.verify_calls,
        prompt_tokens=stream.prompt_tokens,
        times=tuple(stream.times),
    )


class Stream:
    """Folds the lines of a server-sent-event stream of chat chunks. Its texts are masked before
    they are cut: a cut secret would not be found any more."""

    def __init__(self, mask: Callable[[str], str] = str) -> None:
        self._mask = mask
        self.error: str | None = None
        self.first_s: float | None = None
        self.last_s: float | None = None
        self.accept_length: float | None = None
        self.verify_calls: int | None = None
        self.prompt_tokens: int | None = None
        self.times: list[float] = []
        self._pieces: list[str] = []
        self._usage: int | None = None
        self._raw = b""

    def keep(self, raw: bytes) -> None:
        """Keep the beginning of the raw answer."""
        if len(self._raw) < BODY_KEPT:
            text = self._mask(raw.decode("utf-8", "backslashreplace"))
            self._raw = (self._raw + text.encode())[:BODY_KEPT]

    @property
    def text(self) -> str:
        return self._mask("".join(self._pieces))

    def body(self) -> str:
        return self._raw.decode("utf-8", "backslashreplace")

    def feed(self, line: bytes, seconds: float) -> None:
        """One line, `seconds` after the request was sent."""
        self.keep(line)
        if not line.startswith(b"data:"):
            return
        data = line[5:].strip()
        if data == b"[DONE]":
            return
        chunk = loads(data)
        if not isinstance(chunk, dict):
            self._odd("is not a JSON object", data)
            return
        if chunk.get("error"):
            self.error = f"the engine reports an error: {message_of(data, self._mask)}"
        usage = mapping(chunk.get("usage"))
        asked = whole(usage.get("prompt_tokens"))
        self.prompt_tokens = asked if asked is not None and asked > 0 else self.prompt_tokens
        made = usage.get("completion_tokens")
        if made is not None:
            count = whole(made)
            self._usage = None if count is None or count < 0 else count
            if self._usage is None:
                self._odd("counts its tokens with something that is not a number", data)
        self._speculation(chunk)
        choices = chunk.get("choices") or []
        if not isinstance(choices, list):
            self._odd("has no list of choices", data)
            return
        for choice in choices:
            delta = choice.get("delta") if isinstance(choice, dict) else None
            if isinstance(choice, dict) and isinstance(choice.get("text"), str):
                delta = {"content": choice["text"]}  # of a completion
            if not isinstance(delta, dict):
                continue
            piece = "".join(
                delta[key]
                for key in ("reasoning_content", "content")
                if isinstance(delta.get(key), str)
            )
            if piece:
                self._pieces.append(piece)
                self.times.append(seconds)
                self.first_s = seconds if self.first_s is None else self.first_s
                self.last_s = seconds

    def _odd(self, fault: str, data: bytes) -> None:
        begin = self._mask(data.decode("utf-8", "backslashreplace"))[:60]
        self.error = self.error or f"a piece of the answer {fault}: {begin}"

    def _speculation(self, chunk: dict[str, Any]) -> None:
        details = mapping(mapping(chunk.get("sglext")).get("spec_tokens_details"))
        calls = whole(details.get("spec_verify_ct"))
        length = number(details.get("spec_accept_length"))
        if calls is not None and calls > 0 and length is not None:
            self.verify_calls, self.accept_length = calls, length

    def tokens(self) -> int:
        """As the engine counted them; without its count, the pieces that came."""
        return len(self._pieces) if self._usage is None else self._usage

    def tokens_per_s(self) -> float | None:
        """None where all came at once: one piece has no rate."""
        if self.first_s is None or self.last_s is None or len(self._pieces) < 2:
            return None
        # With a drafter a piece holds several tokens; the first one's share is not decoding time.
        decoded = self.tokens() * (len(self._pieces) - 1) / len(self._pieces)
        spent = self.last_s - self.first_s
        return decoded / spent if spent > 0 else None


def fault_of(text: str) -> str | None:
    """Why a text cannot be a working model's answer, None if it can."""
    solid = "".join(text.split())
    if not solid:
        return "the answer is empty"
    if not solid.strip("\0\ufffd"):
        return "the answer contains only NUL or replacement characters"
    piece = repeated_piece(text.strip())
    if piece is not None:
        return f"the answer is {piece!r} over and over"
    return None


def repeated_piece(text: str) -> str | None:
    """The short piece that `text` is REPEATS times or more, None if there is none."""
    for size in range(1, min(PIECE, len(text) // REPEATS) + 1):
        piece = text[:size]
        if piece * (len(text) // size) + piece[: len(text) % size] == text:
            return piece
    return None


def message_of(raw: bytes, mask: Callable[[str], str] = str) -> str:
    """The message of an error answer, masked, at most 200 characters; else the answer's beginning."""
    document = loads(raw)
    found: Any = document
    if isinstance(document, dict):
        error = document.get("error")
        found = error.get("message") if isinstance(error, dict) else error
        found = found or document.get("message") or document.get("detail")
    text = found if isinstance(found, str) else raw.decode("utf-8", "backslashreplace")
    return " ".join(mask(text).split())[:200]


def _unexpected(text: str, readiness: Readiness, prompt: str | None) -> str | None:
    if prompt is not None or readiness.expect is None:
        return None
    if readiness.expect.casefold() in text.casefold():
        return None
    return f"the answer does not contain {readiness.expect!r}"
