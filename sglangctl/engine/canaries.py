"""Does an engine answer as the one before it? A handful of fixed prompts, the most probable answer.

Word for word is no measure: another attention backend, or another batch, turns a near tie the other
way, and from there on the answer is another one. So the tokens of the old answer are put to the new
engine, and their *cost* is taken: by how many nats a token is less probable there than the one that
is most probable there, on average. A near tie costs next to nothing whichever way it went; another
model, wrong weights or a broken kernel cost whole nats. The new engine's own answers are weighed in
the same way: one that decodes what it does not itself find probable is broken.

Where no logprobs are to be had, the share of answers that begin alike has to do.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from sglangctl.engine.generate import message_of
from sglangctl.engine.http import Answer as HttpAnswer
from sglangctl.engine.http import Endpoint, ask
from sglangctl.util.values import mapping, mappings, number, printable, text, whole

PROMPTS = (
    "The capital of France is",
    "Water boils at a temperature of",
    "1, 2, 3, 5, 8, 13,",
    "def add(a, b):\n    return",
    "Monday, Tuesday, Wednesday,",
    "A recipe for plain bread: flour,",
)
"""Short ones: the logits of a prompt's tokens take GPU memory beside a cache that has taken the rest."""
TOKENS = 24
"""Of each answer, at most."""
TEXT_KEPT = 1000
"""Characters of each; what an engine says beyond what it was asked for is left out."""
LIMIT_NATS = 0.1
"""A token on average: e^-0.1 is 10 % less probable."""
BEGINNING = 12
"""Characters."""
LEAST_ALIKE = 0.5
"""Share of the answers that have to begin alike, where no logprobs are to be had."""
ROUNDED = 0.01
"""By which the logarithm of a probability may be above 0."""
GREEDY = {
    "temperature": 0.0,
    "top_p": 1.0,
    "repetition_penalty": 1.0,
    "presence_penalty": 0.0,
    "frequency_penalty": 0.0,
}
"""Said outright: a model's own defaults may punish repetition."""
SAFE_WITH_DRAFTER = (0, 5, 23)
"""Versions before it can crash when they speculate and are asked for logprobs (SGLang #17349)."""


@dataclass(frozen=True)
class Answer:
    """To one prompt. `ids` and `logprobs`: of its tokens; empty where they are not to be had."""

    prompt: str
    text: str
    ids: tuple[int, ...] = ()
    logprobs: tuple[float, ...] = ()

    @classmethod
    def read(cls, document: Any) -> Answer | None:
        """From a kept document; None for what is none."""
        found = mapping(document)
        prompt, said = text(found.get("prompt")), text(found.get("text"))
        if not prompt or said is None:
            return None
        ids, logprobs = _ids(found.get("ids")), _logprobs(found.get("logprobs"))
        return cls(prompt, said, ids, logprobs)


@dataclass(frozen=True)
class Agreement:
    """How far the answers agree. Nats are means over all tokens; None: not to be had."""

    asked: int
    alike: int
    """Answers that begin alike."""
    cost_nats: float | None = None
    """Of the old engine's answers in the new one."""
    own_nats: float | None = None
    """Of the new engine's own answers, put to it as a prompt."""
    lost_nats: float | None = None
    """By which the old engine was surer of its answers than the new one is."""
    fault: str | None = None
    """Why they could not be compared."""

    def said(self) -> str:
        """In words."""
        if self.fault is not None:
            return f"the answers could not be compared: {self.fault}"
        found = f"{self.alike} of {self.asked} answers begin as before"
        if self.cost_nats is not None:
            found += f", {self.cost_nats:.3f} nats a token"
        return found

    def differences(self) -> list[str]:
        """Sentences with the numbers; none where they agree."""
        if self.fault is not None:
            return []
        limit = f"{LIMIT_NATS:g} at most"
        found = []
        if self.cost_nats is None:
            if self.alike < LEAST_ALIKE * self.asked:
                found.append(
                    f"{self.said()} ({LEAST_ALIKE:.0%} at least; no logprobs were to be had)"
                )
        elif self.cost_nats > LIMIT_NATS:
            found.append(
                f"the tokens of the answers before cost {self.cost_nats:.2f} nats each here "
                f"({limit}); {self.alike} of {self.asked} answers begin as before"
            )
        elif self.lost_nats is not None and self.lost_nats > LIMIT_NATS:
            found.append(
                f"it is less sure of the same answers, by {self.lost_nats:.2f} nats a token ({limit})"
            )
        if self.own_nats is not None and self.own_nats > LIMIT_NATS:
            found.append(
                f"what it generates is not what it finds most probable itself: "
                f"{self.own_nats:.2f} nats a token ({limit}); its decoding is broken"
            )
        return found

    def as_dict(self) -> dict[str, Any]:
        """As JSON keeps it."""
        return {**asdict(self), "said": self.said(), "differences": self.differences()}


def safe(speculates: bool, version: str | None) -> bool:
    """Whether an SGLang may be asked for logprobs."""
    parts = (version or "").split(".")[:3]
    known = tuple(int(one) for one in parts if one.isdecimal())
    return not speculates or (len(known) == 3 and known >= SAFE_WITH_DRAFTER)


def record(
    where: Endpoint, model: str, native: bool, logprobs: bool, limit_s: float
) -> tuple[tuple[Answer, ...], str | None]:
    """An engine's answers to PROMPTS, one after the other, and why there are not all of them.
    `limit_s`: for all of them together. `native`: an SGLang, which has /generate; else /v1/completions, as vLLM has it."""
    end = time.monotonic() + limit_s
    made: list[Answer] = []
    for prompt in PROMPTS:
        left = end - time.monotonic()
        if left <= 0:
            return tuple(made), f"no answer in time: {len(made)} of {len(PROMPTS)} came"
        if native:
            answer = _generate(where, {"text": prompt}, left, logprobs)
            found = _native(prompt, answer)
        else:
            answer = _complete(where, model, prompt, left)
            found = _openai(prompt, answer)
        if found is None:
            return tuple(made), _why(answer, where)
        made.append(found)
    return tuple(made), None


def compare(where: Endpoint, before: Sequence[Answer], logprobs: bool, limit_s: float) -> Agreement:
    """What an SGLang makes of the answers of the engine before it, within `limit_s` in all. Never
    raises for what it says."""
    end = time.monotonic() + limit_s
    before = [one for one in before if one.text]
    if not before:
        return Agreement(0, 0, fault="the engine before it answered nothing")
    alike = 0
    costs: list[float] = []
    own: list[float] = []
    lost: list[float] = []
    for old in before:
        left = end - time.monotonic()
        more = {"logprob_start_len": 0} if logprobs else {}
        answer = _generate(where, {"text": old.prompt, **more}, max(left, 0.1), logprobs)
        new = _native(old.prompt, answer)
        if new is None:
            return Agreement(len(before), alike, fault=_why(answer, where))
        alike += new.text[:BEGINNING] == old.text[:BEGINNING]
        prompt = [one[1] for one in _rows(_meta(answer).get("input_token_logprobs"))]
        if not prompt:
            continue
        weighed = _weigh(where, prompt, old, max(end - time.monotonic(), 0.1))
        costs += [best - mine for mine, best in weighed]
        if len(weighed) == len(old.logprobs):
            lost += [then - mine for then, (mine, _) in zip(old.logprobs, weighed)]
        if new.ids != old.ids:
            weighed = _weigh(where, prompt, new, max(end - time.monotonic(), 0.1))
        own += [best - mine for mine, best in weighed]
    return Agreement(len(before), alike, _mean(costs), _mean(own), _mean(lost))


def _weigh(
    where: Endpoint, prompt: Sequence[int], answer: Answer, limit_s: float
) -> list[tuple[float, float]]:
    """Of each token of an answer: its log probability after `prompt`, and that of the most probable
    one. Empty where the engine does not tell, or there is no token."""
    if not answer.ids and not answer.text:
        return []
    start = len(prompt) - 1
    asked: dict[str, Any] = {"logprob_start_len": start, "top_logprobs_num": 1}
    if answer.ids:
        asked["input_ids"] = [*prompt, *answer.ids]
    else:
        asked["text"] = answer.prompt + answer.text.rstrip("\ufffd")
    meta = _meta(_generate(where, asked, limit_s, True, tokens=1))
    rows = _rows(meta.get("input_token_logprobs"))
    best = meta.get("input_top_logprobs")
    if not rows or rows[0][1] != prompt[-1] or not isinstance(best, list):
        return []  # the text's beginning is cut into other tokens than the prompt alone
    found = []
    for (mine, _), top in zip(rows[1:], best[1:]):
        most = _rows(top)
        if mine is None or not most or most[0][0] is None:
            return []
        found.append((mine, max(mine, most[0][0])))
    return found


def _generate(
    where: Endpoint,
    what: Mapping[str, Any],
    limit_s: float,
    logprobs: bool,
    tokens: int = TOKENS,
) -> HttpAnswer:
    sampling = {**GREEDY, "max_new_tokens": tokens}
    document = {**what, "sampling_params": sampling, "return_logprob": logprobs}
    return ask(where, "/generate", limit_s, document)


def _complete(where: Endpoint, model: str, prompt: str, limit_s: float) -> HttpAnswer:
    asked = {"model": model, "prompt": prompt, "max_tokens": TOKENS, "logprobs": 1, **GREEDY}
    answer = ask(where, "/v1/completions", limit_s, {**asked, "return_token_ids": True})
    if answer.status not in (400, 422):
        return answer
    plain = {"model": model, "prompt": prompt, "max_tokens": TOKENS, "temperature": 0.0}
    return ask(where, "/v1/completions", limit_s, plain)


def _native(prompt: str, answer: HttpAnswer) -> Answer | None:
    """An answer of /generate; None where it is none. An empty text is one: a broken engine may end at
    once."""
    said = text(answer.object().get("text"))
    if said is None:
        return None
    rows = _rows(_meta(answer).get("output_token_logprobs"))
    ids = tuple(one[1] for one in rows) or _ids(answer.object().get("output_ids"))
    values = tuple(one[0] for one in rows if one[0] is not None)
    return _bounded(prompt, said, ids, values if len(values) == len(ids) else ())


def _openai(prompt: str, answer: HttpAnswer) -> Answer | None:
    """An answer of /v1/completions; None where it is none."""
    choice = next(iter(mappings(answer.object().get("choices"))), {})
    said = text(choice.get("text"))
    if said is None:
        return None
    ids = _ids(choice.get("token_ids"))
    values = _logprobs(mapping(choice.get("logprobs")).get("token_logprobs"))
    return _bounded(prompt, said, ids, values if not ids or len(ids) == len(values) else ())


def _bounded(prompt: str, said: str, ids: tuple[int, ...], logprobs: tuple[float, ...]) -> Answer:
    # A probability above 1, or of 1 throughout, is what an engine says that computes none.
    real = any(logprobs) and max(logprobs) <= ROUNDED
    return Answer(prompt, said[:TEXT_KEPT], ids[:TOKENS], logprobs[:TOKENS] if real else ())


def _ids(found: Any) -> tuple[int, ...]:
    """The tokens in a list; none of anything else."""
    made = [whole(one) for one in found] if isinstance(found, list) else []
    return tuple(one for one in made if one is not None) if None not in made else ()


def _logprobs(found: Any) -> tuple[float, ...]:
    made = [number(one) for one in found] if isinstance(found, list) else []
    return tuple(one for one in made if one is not None) if None not in made else ()


def _meta(answer: HttpAnswer) -> dict[str, Any]:
    return mapping(answer.object().get("meta_info"))


def _rows(found: Any) -> list[tuple[float | None, int]]:
    """(log probability, token) of SGLang's lists of [log probability, token, text]."""
    rows = []
    for one in found if isinstance(found, list) else ():
        token = whole(one[1]) if isinstance(one, list) and len(one) > 1 else None
        if token is None:
            return []
        rows.append((number(one[0]), token))
    return rows


def _why(answer: HttpAnswer, where: Endpoint) -> str:
    if answer.status is None:
        return f"no complete answer within {answer.seconds:.1f} s ({answer.error})"
    if answer.status != 200:
        return printable(
            f"{answer.path} answered {answer.status}: {message_of(answer.body, where.mask)}"
        )
    return f"{answer.path} answered without a text"


def _mean(values: Sequence[float]) -> float | None:
    return round(sum(values) / len(values), 4) if values else None
