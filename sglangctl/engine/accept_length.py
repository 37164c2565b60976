"""The accept length of a drafter, measured over our own requests only.

The engine's running average (/server_info, the log) includes all traffic since its start. Which
answer names the request's own figures depends on the version:

* 0.5.23: the chat stream, `sglext.spec_tokens_details` (asked for by sglangctl.engine.generate);
* 0.5.16: the chat answer without streaming, `choices[].meta_info`, with `return_meta_info`;
* 0.5.9: /generate alone, `meta_info`.

Where none of them does, the counters of /metrics are compared before and after, and believed
only if the engine generated nothing but our tokens meanwhile. Otherwise it is unknown.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

from sglangctl.engine.generate import Generation
from sglangctl.engine.http import Endpoint, ask
from sglangctl.state.config import Readiness
from sglangctl.util import lazy_re
from sglangctl.util.values import number, whole

PROMPTS = (
    "Explain in three sentences why the sky is blue.",
    "Describe, step by step, how bread is baked.",
)
"""Beside the inventory's own prompt: natural text, because random prompts flatter a drafter."""
COUNTER = lazy_re.compile(
    r"^sglang:(generation_tokens|spec_verify_calls)_total(?:\{[^}\n]*\})? ([0-9.eE+]+)$", re.M
)


@dataclass(frozen=True)
class Acceptance:
    """`length` None: cannot be told, and `source` says why."""

    length: float | None
    source: str


@dataclass(frozen=True)
class Counts:
    """Tokens made, and calls of the target model that verified drafts."""

    tokens: float
    calls: float

    @property
    def length(self) -> float | None:
        return self.tokens / self.calls if self.calls > 0 else None


def measure(
    where: Endpoint, model: str, readiness: Readiness, timeout_s: float, first: Generation
) -> Acceptance:
    """Mean accept length over our prompts; `first` is the generation that was made already."""
    if first.verify_calls and first.tokens:
        return _over_prompts(where, model, readiness, timeout_s, first)
    before = counters(where, timeout_s)
    made: list[Counts] = []
    tokens = 0
    source = ""
    for prompt in (readiness.prompt, *PROMPTS):
        counts, used, source = _ask_once(where, model, prompt, readiness.max_tokens, timeout_s)
        tokens += used
        if counts is None:
            break
        made.append(counts)
    else:
        total = Counts(sum(item.tokens for item in made), sum(item.calls for item in made))
        return Acceptance(total.length, source)
    after = counters(where, timeout_s)
    return between(before, after, tokens)


def between(before: Counts | None, after: Counts | None, ours: int) -> Acceptance:
    """From the counters of /metrics around `ours` tokens of our own."""
    if before is None or after is None:
        return Acceptance(
            None, "this version does not report it with an answer and has no such counter"
        )
    made = Counts(after.tokens - before.tokens, after.calls - before.calls)
    if ours <= 0 or made.tokens != ours:
        return Acceptance(None, "others used the engine at the same time")
    if made.length is None:
        return Acceptance(None, "the engine counted no verification of drafts")
    return Acceptance(made.length, "/metrics, before and after our requests")


def counters(where: Endpoint, timeout_s: float) -> Counts | None:
    """The two counters of /metrics, over all their labels; None without either."""
    answer = ask(where, "/metrics", timeout_s)
    if answer.status != 200:
        return None
    sums: dict[str, float] = {}
    for name, text in COUNTER.findall(answer.body.decode("utf-8", "replace")):
        value = _float(text)
        if value is None:
            return None  # a sum without it would be wrong
        sums[name] = sums.get(name, 0.0) + value
    if len(sums) < 2:
        return None
    return Counts(sums["generation_tokens"], sums["spec_verify_calls"])


def _over_prompts(
    where: Endpoint, model: str, readiness: Readiness, timeout_s: float, first: Generation
) -> Acceptance:
    from sglangctl.engine.generate import generate

    asked = [first]
    for prompt in PROMPTS:
        asked.append(generate(where, model, readiness, timeout_s, prompt))
    counts = [(item.tokens, item.verify_calls) for item in asked]
    known = [(tokens, calls) for tokens, calls in counts if tokens and calls]
    total = Counts(sum(tokens for tokens, _ in known), sum(calls for _, calls in known))
    return Acceptance(total.length, "the answers to our requests (spec_tokens_details)")


def _ask_once(
    where: Endpoint, model: str, prompt: str, max_tokens: int, timeout_s: float
) -> tuple[Counts | None, int, str]:
    """Figures of one request, the tokens it made in all, and where the figures come from."""
    answer = ask(
        where,
        "/v1/chat/completions",
        timeout_s,
        {
            "model": model,
            "messages": [{"role": "user", "content": prompt}],
            "max_tokens": max_tokens,
            "return_meta_info": True,
        },
    )
    document = answer.object()
    used = _whole(_inside(document, "usage", "completion_tokens"))
    choices = document.get("choices")
    meta = _inside(choices[0], "meta_info") if isinstance(choices, list) and choices else None
    counts = _counts(meta)
    if counts is not None:
        return counts, used, "the answers to our requests (meta_info)"
    parameters = {"max_new_tokens": max_tokens}
    answer = ask(where, "/generate", timeout_s, {"text": prompt, "sampling_params": parameters})
    meta = answer.object().get("meta_info")
    used += _whole(_inside(meta, "completion_tokens"))
    return _counts(meta), used, "the answers to our requests (/generate)"


def _counts(meta: Any) -> Counts | None:
    calls = _whole(_inside(meta, "spec_verify_ct"))
    tokens = _whole(_inside(meta, "completion_tokens"))
    return Counts(tokens, calls) if calls and tokens else None


def _inside(document: Any, *keys: str) -> Any:
    for key in keys:
        document = document.get(key) if isinstance(document, dict) else None
    return document


def _whole(value: Any) -> int:
    found = whole(value)
    return found if found is not None and found > 0 else 0


def _float(text: str) -> float | None:
    try:
        return number(float(text))
    except ValueError:
        return None
