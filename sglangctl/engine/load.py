"""A small load of our own: how fast does an engine answer one client, and several at once?

Every request asks for the same number of tokens, streamed, with a beginning of its own (nothing of
the prompt is in the cache). Single requests and batches take turns, so that a disturbance of the
host meets both. What else a host does makes an engine slower, never faster: its undisturbed speed
is that of the quicker fifth (p20), which stays where it is while the host is busy.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, fields
from typing import Any

from sglangctl.engine.generate import Generation
from sglangctl.engine.http import Endpoint
from sglangctl.engine.kinds import CHATTING, Kind
from sglangctl.state.config import Acceptance
from sglangctl.util.values import number, rounded

TEXT = (
    "Write a plain report about a day at the harbour: which boats came in, what they carried, how "
    "the weather changed, who waited on the quay, and what was left to do in the evening. "
)
REPEATS = 6
SINGLES = 3
"""Single requests in one turn."""
TURNS = 5
"""At most; fewer where the time limit is spent first."""
WARM_TOKENS = 4
WINDOW = 8
"""Pieces over which a pace is taken: what a busy client reads late comes in one bunch."""


@dataclass(frozen=True)
class Speed:
    """Of requests at one concurrency. Seconds; None: too few pieces came to tell."""

    concurrency: int
    requests: int
    tokens_per_s: float | None
    """All requests of a batch together, from their sending on: the median batch."""
    first_p20_s: float | None
    """Until the first token."""
    first_p50_s: float | None
    first_p95_s: float | None
    pace_p20_s: float | None
    """A piece of an answer, over WINDOW of them."""
    pace_p50_s: float | None
    gap_p50_s: float | None
    """Between two pieces."""
    gap_p95_s: float | None
    gap_p99_s: float | None
    noise_p20: float | None
    """Relative error of pace_p20_s, by how much the requests' own differ ..."""
    noise_p50: float | None
    """... and of pace_p50_s."""

    @classmethod
    def read(cls, document: Any) -> Speed | None:
        """From a kept document; None for what is none."""
        if not isinstance(document, dict):
            return None
        values = {item.name: number(document.get(item.name)) for item in fields(cls)}
        counts = (values.pop("concurrency"), values.pop("requests"))
        if counts[0] is None or counts[1] is None:
            return None
        return cls(int(counts[0]), int(counts[1]), **values)


@dataclass(frozen=True)
class Load:
    """Speeds of one measurement, lowest concurrency first. `fault`: why it was not completed."""

    seconds: float
    speeds: tuple[Speed, ...]
    fault: str | None = None

    def as_dict(self) -> dict[str, Any]:
        """As JSON keeps it."""
        return {**asdict(self), "speeds": [asdict(speed) for speed in self.speeds]}


def measure(where: Endpoint, model: str, wanted: Acceptance, kind: Kind = CHATTING) -> Load:
    """Load the engine for at most `wanted.limit_s` seconds (a request that is under way then is
    given up)."""
    began = time.monotonic()
    end = began + wanted.limit_s
    batches: dict[int, list[list[Generation]]] = {1: [], wanted.concurrency: []}
    counter = 0

    def send(count: int, tokens: int) -> list[Generation]:
        nonlocal counter
        requests = []
        for _ in range(count):
            counter += 1
            prompt = f"Report {counter} of {began:.3f}. {TEXT * REPEATS}"
            requests.append(kind.request(model, prompt, tokens, ignore_eos=True))
        left = max(0.5, end - time.monotonic())
        return kind.send_together(where, requests, left)

    fault = _fault(send(1, WARM_TOKENS))
    turns: list[float] = []
    while fault is None and len(turns) < TURNS:
        turn = time.monotonic()
        if turns and turn + max(turns) > end:
            break
        for count in (*[1] * SINGLES, wanted.concurrency):
            answers = send(count, wanted.tokens)
            fault = _fault(answers)
            if fault is not None:
                break
            batches[count].append(answers)
        turns.append(time.monotonic() - turn)
    if turns and time.monotonic() >= end and any(batches.values()):
        fault = None  # a slow engine: what it has answered within the time counts
    speeds = tuple(_speed(count, batches[count]) for count in sorted(batches) if batches[count])
    return Load(round(time.monotonic() - began, 3), speeds, fault)


def _fault(answers: Iterable[Generation]) -> str | None:
    return next((answer.fault for answer in answers if answer.fault is not None), None)


def _speed(count: int, batches: list[list[Generation]]) -> Speed:
    answers = [answer for batch in batches for answer in batch]
    firsts = [answer.ttft_s for answer in answers if answer.ttft_s is not None]
    gaps = [gaps_of(answer) for answer in answers]
    every = [gap for own in gaps for gap in own]
    paces = [paces_of(answer.times) for answer in answers]
    all_paces = [pace for own in paces for pace in own]
    rates = [
        sum(answer.tokens or 0 for answer in batch) / max(answer.seconds for answer in batch)
        for batch in batches
    ]
    return Speed(
        concurrency=count,
        requests=len(answers),
        tokens_per_s=rounded(statistics.median(rates), 5),
        first_p20_s=rounded(quantile(firsts, 0.2), 5),
        first_p50_s=rounded(quantile(firsts, 0.5), 5),
        first_p95_s=rounded(quantile(firsts, 0.95), 5),
        pace_p20_s=rounded(quantile(all_paces, 0.2), 5),
        pace_p50_s=rounded(quantile(all_paces, 0.5), 5),
        gap_p50_s=rounded(quantile(every, 0.5), 5),
        gap_p95_s=rounded(quantile(every, 0.95), 5),
        gap_p99_s=rounded(quantile(every, 0.99), 5),
        noise_p20=rounded(spread([quantile(own, 0.2) or 0.0 for own in paces if own]), 5),
        noise_p50=rounded(spread([quantile(own, 0.5) or 0.0 for own in paces if own]), 5),
    )


def gaps_of(answer: Generation) -> list[float]:
    """Seconds between its pieces; those that came in one read are one piece."""
    times = answer.times
    return [after - before for before, after in zip(times, times[1:]) if after > before]


def paces_of(times: Sequence[float]) -> list[float]:
    """Seconds a piece, over each WINDOW of pieces (over all of them where there are fewer)."""
    size = min(WINDOW, len(times) - 1)
    if size < 1:
        return []
    return [(after - before) / size for before, after in zip(times, times[size:])]


def quantile(values: Sequence[float], share: float) -> float | None:
    """The value that `share` of all do not exceed; None without any."""
    if not values:
        return None
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))]


def spread(values: Sequence[float]) -> float | None:
    """Relative standard error of the median, by the median deviation from it; None of fewer than 3."""
    if len(values) < 3:
        return None
    middle = statistics.median(values)
    deviation = statistics.median(abs(value - middle) for value in values)
    # 1.4826: from the median deviation to the standard one; 1.2533: from a mean's error to a median's.
    return 1.4826 * 1.2533 * deviation / middle / len(values) ** 0.5 if middle > 0 else None
