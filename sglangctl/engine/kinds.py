"""What kind of model an engine serves, and how each kind is asked: not everything is a chat.

A model that makes vectors (embeddings) or scores (rewards, classes) has no text to judge. What it
must show: the right shape, finite numbers, not all of them equal, and another answer to another
text. A base model has no chat template: it completes a text.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

from sglangctl.engine.generate import CHAT, Generation, message_of, stream_of
from sglangctl.engine.http import Answer, Endpoint, ask
from sglangctl.util.values import mapping, mappings, number, texts, whole

OTHER_TEXT = "A boat brings bread and letters over the river."
INFO_PATHS = ("/model_info", "/get_model_info")
"""Answered without the scheduler; the second is the older name."""
SCORES = ("Classification", "Reward")
"""In the name of an architecture that makes scores."""


@dataclass(frozen=True)
class Kind:
    """One way of asking. `vectors`: the answer is numbers, not text."""

    name: str
    path: str
    vectors: bool = False

    def request(self, model: str, prompt: str, tokens: int, **more: Any) -> dict[str, Any]:
        """The document for one prompt."""
        if self is EMBEDDING:
            return {"model": model, "input": [prompt, OTHER_TEXT]}
        if self is SCORE:
            return {"model": model, "text": [prompt, OTHER_TEXT]}
        asked: dict[str, Any] = {"model": model, "max_tokens": tokens, **more}
        if self is COMPLETION:
            return {**asked, "prompt": prompt}
        return {**asked, "messages": [{"role": "user", "content": prompt}]}

    def send(self, where: Endpoint, request: Mapping[str, Any], timeout_s: float) -> Generation:
        """The answer; never raises for what the network or the server does."""
        if not self.vectors:
            return stream_of(where, request, timeout_s, self.path)
        return judged(self, ask(where, self.path, timeout_s, request), where)

    def send_together(
        self, where: Endpoint, requests: Sequence[Mapping[str, Any]], timeout_s: float
    ) -> list[Generation]:
        """The answers to requests that are sent at the same time, in the requests' order."""
        with ThreadPoolExecutor(len(requests)) as pool:
            return list(pool.map(lambda one: self.send(where, one, timeout_s), requests))


CHATTING = Kind("chat", CHAT)
COMPLETION = Kind("completion", "/v1/completions")
EMBEDDING = Kind("embedding", "/v1/embeddings", vectors=True)
SCORE = Kind("score", "/classify", vectors=True)


def named(name: str) -> Kind:
    """The kind with this name."""
    return next(kind for kind in (COMPLETION, EMBEDDING, SCORE, CHATTING) if kind.name == name)


def of(where: Endpoint, timeout_s: float) -> Kind:
    """By what the engine says of its model; a chat where it says nothing."""
    for path in INFO_PATHS:
        answer = ask(where, path, timeout_s)
        if answer.status == 404:
            continue
        info = answer.object()
        if info.get("is_generation") is not False:
            return CHATTING
        names = texts(info.get("architectures"))
        scores = any(mark in name for name in names for mark in SCORES)
        return SCORE if scores else EMBEDDING
    return CHATTING


def without_template(answer: Generation) -> bool:
    """Whether a chat was refused because the model has no chat template."""
    refused = answer.status is not None and 400 <= answer.status <= 500
    return refused and "chat template" in str(answer.fault).replace("_", " ").casefold()


def judged(kind: Kind, answer: Answer, where: Endpoint) -> Generation:
    """An answer of numbers, in the shape that a proof has."""
    if answer.status != 200:
        failed = f"{kind.path} answered {answer.status}: {message_of(answer.body, where.mask)}"
        if answer.status is None:
            failed = f"no complete answer within {answer.seconds:.1f} s ({answer.error})"
        return Generation(answer.status, answer.error, answer.seconds, text_ok=False, fault=failed)
    document = answer.json()
    found = vectors(document)
    fault = fault_of(found)
    size = len(found[0]) if found else 0
    usage = mapping(mapping(document).get("usage"))
    return Generation(
        status=200,
        error=None,
        seconds=answer.seconds,
        ttft_s=answer.seconds,
        text=f"{len(found)} vectors of {size} numbers" if fault is None else "",
        text_ok=fault is None,
        fault=fault,
        prompt_tokens=whole(usage.get("prompt_tokens")),
    )


def vectors(document: Any) -> list[list[Any]]:
    """The vectors of an answer of /v1/embeddings or /classify; a score alone is one of length 1."""
    items = document.get("data") if isinstance(document, dict) else document
    found = [item.get("embedding") for item in mappings(items)]
    return [value if isinstance(value, list) else [value] for value in found]


def fault_of(found: list[list[Any]]) -> str | None:
    """Why these cannot be a working model's vectors for two texts, None if they can."""
    if len(found) != 2:
        return f"the answer has {len(found)} vectors for 2 texts"
    if not found[0] or len(found[0]) != len(found[1]):
        return f"its vectors have {len(found[0])} and {len(found[1])} numbers"
    for vector in found:
        if any(number(value) is None for value in vector):
            return "a vector contains something that is not a finite number"
        if len(vector) > 1 and len(set(vector)) == 1:
            return f"all {len(vector)} numbers of a vector are equal ({vector[0]})"
    if found[0] == found[1]:
        return "two different texts have the same vector"
    return None
