"""A language model of forty lines behind SGLang's /generate and vLLM's /v1/completions, with its
logprobs: for tests of what is made of them."""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from typing import Any

WORDS = [f" w{number}" for number in range(50)]


class Model:
    """Each token by the two before it. `noise`: nats by which each log probability is off, as of other
    kernels; `weights`: which model it is; `heat`: by what its logits are divided, 1 is right."""

    def __init__(self, weights: int = 0, noise: float = 0.0, heat: float = 1.0) -> None:
        self.weights, self.noise, self.heat = weights, noise, heat
        self.decodes: Model = self
        """Of a kernel for decoding that is not the one for prompts."""
        self.logprobs = True
        self.speculates = False

    def next(self, ids: Sequence[int]) -> list[float]:
        """The log probabilities of the next token."""
        choose = random.Random(f"{self.weights} {tuple(ids[-2:])}")
        logits = [choose.gauss(0.0, 3.0) for _ in WORDS]
        off = random.Random(f"{self.noise} {tuple(ids)}")
        logits = [(one + off.gauss(0.0, self.noise)) / self.heat for one in logits]
        total = math.log(sum(map(math.exp, logits)))
        return [one - total for one in logits]

    def decode(self, ids: Sequence[int], count: int) -> list[tuple[float, int]]:
        made: list[tuple[float, int]] = []
        for _ in range(count):
            found = self.decodes.next([*ids, *(token for _, token in made)])
            made.append(max((value, token) for token, value in enumerate(found)))
        return made

    def native(self, asked: dict[str, Any]) -> tuple[int, Any]:
        """/generate."""
        ids = list(asked.get("input_ids") or tokens(asked["text"]))
        made = self.decode(ids, asked["sampling_params"]["max_new_tokens"])
        meta: dict[str, Any] = {"prompt_tokens": len(ids)}
        if asked.get("return_logprob") and self.logprobs:
            meta["output_token_logprobs"] = [[value, token, None] for value, token in made]
            start = asked.get("logprob_start_len", -1)
            if start >= 0:
                seen = [(at, self.next(ids[:at])) for at in range(start + 1, len(ids))]
                meta["input_token_logprobs"] = [
                    [None, ids[start], None],
                    *([found[ids[at]], ids[at], None] for at, found in seen),
                ]
                meta["input_top_logprobs"] = [
                    None,
                    *([[max(found), found.index(max(found)), None]] for _, found in seen),
                ]
        text = "".join(WORDS[token] for _, token in made)
        return 200, {"text": text, "output_ids": [token for _, token in made], "meta_info": meta}

    def completion(self, asked: dict[str, Any]) -> tuple[int, Any]:
        """/v1/completions, as vLLM answers it."""
        made = self.decode(tokens(asked["prompt"]), asked["max_tokens"])
        choice: dict[str, Any] = {"text": "".join(WORDS[token] for _, token in made)}
        if asked.get("logprobs"):
            choice["logprobs"] = {"token_logprobs": [value for value, _ in made]}
        if asked.get("return_token_ids"):
            choice["token_ids"] = [token for _, token in made]
        return 200, {"choices": [choice]}

    def answer(self, path: str, asked: dict[str, Any]) -> tuple[int, Any] | None:
        """For http_engine.Engine.answers."""
        if path == "/generate":
            return self.native(asked)
        return self.completion(asked) if path == "/v1/completions" else None


def tokens(text: str) -> list[int]:
    """Known words as they are, everything else by its characters."""
    head, *words = text.split(" w")
    return [ord(one) % len(WORDS) for one in head] + [int(word) for word in words]
