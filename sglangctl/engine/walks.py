"""The paths that users walk: asked before `ready`, because an engine compiles kernels for each path
when it is walked first.

What a chat does every day is not what one prompt shows: a beginning that is in the cache already, a
prompt longer than one chunk of the prefill, several requests in one batch, another way of sampling,
an answer that must be JSON. Each is asked once, which may take minutes, and at the end once more:
then its first token must come quickly.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from sglangctl.engine.generate import Generation
from sglangctl.engine.http import Answer, Endpoint
from sglangctl.engine.kinds import Kind
from sglangctl.state.config import EngineConfig
from sglangctl.util.values import mappings, whole

TOKENS = 2
"""Of an answer: one from the prefill, one from a step of the decoding."""
BATCH = 4
SHORTEST_S = 0.001
TEXT = (
    "A host has a name, an address and a list of disks. Each disk has a size and an age. The town "
    "lies on the bank of a river, and every morning a small boat brings bread, letters and news from "
    "the other side. When the water is high the boat stays at home, and people read the old papers "
    "once more. In winter the road over the hill is closed for some days; then the school is closed "
    "as well, and the children carry wood. What is written down here is meant to be long, plain and "
    "without surprises: words in an order that makes sense, so that a reader is never held up. "
)
SCHEMA = {
    "type": "object",
    "properties": {"number": {"type": "integer"}},
    "required": ["number"],
}
LONGEST_CHUNK = 8192
"""Tokens of the long prompt where the prefill is not cut into chunks."""
ROOM = 0.9
"""Share of what fits that the long prompt takes at most."""

Say = Callable[[str, int, int], None]
"""Told which path is walked now: its name, its number, of how many."""


@dataclass(frozen=True)
class Path:
    """Requests that are sent at the same time."""

    name: str
    requests: tuple[Mapping[str, Any], ...]
    optional: bool = False
    """An engine may refuse it (a status of 4xx) and be ready all the same."""


@dataclass(frozen=True)
class Walked:
    """One path. Seconds until the first token of the last of its requests."""

    name: str
    first_s: float | None = None
    again_s: float | None = None
    """The same, repeated at the end of the proof."""
    fault: str | None = None
    """It does not work."""
    skipped: str | None = None
    """Why it was not walked."""


@dataclass(frozen=True)
class Walks:
    """All paths of one proof, and what they took together."""

    mode: str
    seconds: float
    limit_s: float
    walked: tuple[Walked, ...]

    @property
    def faulty(self) -> bool:
        return any(one.fault is not None for one in self.walked)

    def event(self) -> dict[str, Any]:
        """`warm` of a `generate` event."""
        walked = [
            {key: value for key, value in asdict(one).items() if value is not None}
            for one in self.walked
        ]
        return {
            "mode": self.mode,
            "seconds": round(self.seconds, 3),
            "limit_s": self.limit_s,
            "paths": walked,
        }


def walk(
    where: Endpoint,
    config: EngineConfig,
    kind: Kind,
    info: Answer | None,
    models: Answer | None,
    say: Say = lambda name, number, total: None,
) -> Walks:
    """Walk every path, and each once more at the end. Ends at the first that does not work.

    `info`, `models`: the answers of /server_info and /v1/models, for how long a prompt may be.
    """
    began = time.monotonic()
    asking = _Asking(where, kind, config.limits.generate_timeout_s)
    limit_s = config.readiness.first_token_s
    plan = _Plan(config, kind, info.object() if info else {}, models)
    results: list[Walked] = []
    paths: dict[str, Path] = {}
    total = plan.count
    for number, path in enumerate(plan.paths(asking), start=1):
        if isinstance(path, Walked):
            results.append(path)
            continue
        say(path.name, number, total)
        one = asking.first(path)
        results.append(one)
        if one.fault is not None:
            return Walks(plan.mode, time.monotonic() - began, limit_s, tuple(results))
        if one.skipped is None:
            paths[path.name] = path
    for index, one in enumerate(results):
        again = paths.get(one.name)
        if again is None:
            continue
        say(f"{one.name}, once more", index + 1, total)
        results[index] = asking.again(again, one, limit_s)
        if results[index].fault is not None:
            break
    return Walks(plan.mode, time.monotonic() - began, limit_s, tuple(results))


class _Plan:
    """Which paths there are, by the configuration and by what the engine says of itself."""

    def __init__(
        self, config: EngineConfig, kind: Kind, fields: Mapping[str, Any], models: Answer | None
    ) -> None:
        self._config, self._kind, self._fields = config, kind, fields
        self._context = _context(models)
        warm = config.readiness.warm
        self.mode = warm if isinstance(warm, str) else "own prompts"
        if isinstance(warm, tuple):
            self.count = len(warm)
        else:
            whole_count = 3 if kind.vectors else 7 + 2 * (config.drafter is not None)
            self.count = 2 if warm == "short" else whole_count

    def paths(self, asking: _Asking) -> Iterator[Path | Walked]:
        """One after another: how long the long prompt is rests on the answer to an earlier one."""
        warm = self._config.readiness.warm
        if isinstance(warm, tuple):
            for number, prompt in enumerate(warm, start=1):
                yield Path(f"prompt {number} of the inventory", (self._ask(prompt),))
            return
        yield Path("the same prompt again", (self._ask(self._config.readiness.prompt),))
        several = Path("several at once", self._several())
        if warm == "short":
            yield several
            return
        text = Path("a longer prompt", (self._ask(TEXT),))
        yield text
        if self._kind.vectors:
            yield several
            return
        yield self._long(asking.prompt_tokens(text))
        yield several
        yield Path("temperature 0", (self._ask(TEXT, temperature=0),))
        yield Path("top-p sampling", (self._ask(TEXT, temperature=0.7, top_p=0.9, top_k=40),))
        if self._config.drafter is not None:
            yield Path("several at temperature 0", self._several(temperature=0))
            sampled = self._several(temperature=0.7, top_p=0.9)
            yield Path("several with top-p sampling", sampled)
        yield self._schema()

    def _ask(self, prompt: str, tokens: int = TOKENS, **more: Any) -> dict[str, Any]:
        return self._kind.request(self._config.served_name, prompt, tokens, **more)

    def _several(self, **more: Any) -> tuple[dict[str, Any], ...]:
        """Of different lengths, so that the batch gets smaller while it is decoded."""
        return tuple(
            self._ask(f"{TEXT} Question {number}?", TOKENS + number // 2, **more)
            for number in range(BATCH)
        )

    def _long(self, tokens: int | None) -> Path | Walked:
        """A prompt longer than a chunk of the prefill, or what fits."""
        name = "a prompt longer than a chunk"
        if not tokens:
            return Walked(name, skipped="the engine does not count the tokens of a prompt")
        chunk = whole(self._fields.get("chunked_prefill_size")) or 0
        wanted = chunk * 1.15 if chunk > 0 else LONGEST_CHUNK
        rooms = [self._context, whole(self._fields.get("max_total_num_tokens"))]
        rooms.append(whole(self._fields.get("max_req_input_len")))
        room = min((room for room in rooms if room is not None and room > 0), default=None)
        if room is None:
            return Walked(name, skipped="the engine does not say how long a prompt may be")
        repeats = int(min(wanted // tokens + 1, room * ROOM // tokens))
        if repeats < 2:
            return Walked(name, skipped=f"no longer prompt fits into {room} tokens")
        return Path(name, (self._ask(TEXT * repeats),))

    def _schema(self) -> Path | Walked:
        name = "a JSON schema"
        if self._fields.get("grammar_backend") == "none":
            return Walked(name, skipped="the engine has no grammar backend")
        schema = {"type": "json_schema", "json_schema": {"name": "answer", "schema": SCHEMA}}
        request = self._ask("Name a number.", response_format=schema)
        return Path(name, (request,), optional=True)


class _Asking:
    """Sends the requests of a path, all at the same time."""

    def __init__(self, where: Endpoint, kind: Kind, timeout_s: float) -> None:
        self._where, self._kind, self._timeout_s = where, kind, timeout_s
        self._tokens: dict[str, int] = {}

    def prompt_tokens(self, path: Path) -> int | None:
        """Of the longest prompt of a path that was walked, template included."""
        return self._tokens.get(path.name)

    def _send(self, requests: Sequence[Mapping[str, Any]]) -> list[Generation]:
        return self._kind.send_together(self._where, requests, self._timeout_s)

    def first(self, path: Path) -> Walked:
        """The first time: whatever it takes."""
        answers = self._send(path.requests)
        counted = [answer.prompt_tokens for answer in answers if answer.prompt_tokens]
        if counted:
            self._tokens[path.name] = max(counted)
        refused = next((a for a in answers if a.status is not None and 400 <= a.status < 500), None)
        if refused is not None and path.optional:
            return Walked(path.name, skipped=refused.fault)
        return Walked(path.name, _start(answers), fault=_fault(answers))

    def again(self, path: Path, before: Walked, limit_s: float) -> Walked:
        """Once more, and once more again where that was slow: something else may have come between."""
        shorter = {} if self._kind.vectors else {"max_tokens": 1}
        requests = tuple({**request, **shorter} for request in path.requests)
        answers = self._send(requests)
        again_s = _start(answers)
        if _fault(answers) is None and again_s is not None and again_s > limit_s:
            answers = self._send(requests)
            again_s = _start(answers)
        return Walked(path.name, before.first_s, again_s, _fault(answers))


def _start(answers: list[Generation]) -> float | None:
    """Seconds until the last of the requests had its first token."""
    # An answer without text (a special token, or half of a character) has come when it ended.
    starts = [a.ttft_s if a.ttft_s is not None else a.seconds for a in answers]
    return round(max(SHORTEST_S, *starts), 3) if starts else None


def _fault(answers: list[Generation]) -> str | None:
    """What is wrong with one of them. What it says is judged elsewhere: two tokens say nothing."""
    for answer in answers:
        if answer.fault is not None:
            return answer.fault
        if answer.tokens == 0:
            return "the answer is empty"
    return None


def _context(models: Answer | None) -> int | None:
    """The longest context that /v1/models names."""
    items = mappings(models.object().get("data")) if models else []
    lengths = [whole(item.get("max_model_len")) for item in items]
    return max((length for length in lengths if length), default=None)
