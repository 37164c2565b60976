"""A seeded generator of journal events: right ones, broken ones, cut, reordered and binary.

Some are pieces of the real traces, some of their events in another order, some are made up. The
same seed gives the same events.
"""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

TRACES = Path(__file__).parents[1] / "traces"
KINDS = (
    "launch",
    "log",
    "http",
    "gpu",
    "process",
    "socket",
    "generate",
    "exit",
    "step",
    "nonsense",
)
FIELDS = (
    *("t", "data", "path", "status", "error", "seconds", "gpus", "processes", "port", "owner_pid"),
    *("ours", "returncode", "argv", "drafter", "weights_bytes", "history", "models", "text_ok"),
    *(
        "accept_length",
        "frozen",
        "oom_kills",
        "oom",
        "shm_full",
        "xid",
        "clients",
        "tokens",
        "step",
    ),
    *("index", "memory_used_mib", "memory_total_mib", "utilization_pct", "ours_mib"),
    *("pid", "name", "state", "cpu_s", "read_bytes", "rss_mib", "engine", "served_name"),
)
ODD: tuple[Any, ...] = (
    *(None, True, False, 0, -1, 1, 3, 98, -9, -7, 10**30, -(10**30), 1e308, 1e-300),
    *(
        float("nan"),
        float("inf"),
        -float("inf"),
        "",
        "0",
        "T",
        "Z",
        "\x00",
        "\x1b[31m",
        "x" * 70000,
    ),
    *("\ud800", "\r\r\n", "é" * 300, [], {}, [None], [[]], [{}], {"a": {"b": []}}, ["vllm"]),
)


def _value(random_: random.Random, depth: int = 0) -> Any:
    kind = random_.randrange(6 if depth < 3 else 4)
    if kind < 2:
        return random_.choice(ODD)
    if kind == 2:
        return random_.uniform(-1e4, 1e4)
    if kind == 3:
        return random_.randrange(-70000, 70000)
    if kind == 4:
        return [_value(random_, depth + 1) for _ in range(random_.randrange(4))]
    return {random_.choice(FIELDS): _value(random_, depth + 1) for _ in range(random_.randrange(4))}


def _text(random_: random.Random, pieces: list[str]) -> str:
    choice = random_.randrange(4)
    if choice == 0:
        return bytes(random_.randrange(256) for _ in range(random_.randrange(200))).decode(
            "latin-1"
        )
    piece = random_.choice(pieces)
    if choice == 1:
        at = random_.randrange(len(piece) + 1)
        return piece[:at]
    if choice == 2:
        at = random_.randrange(len(piece) + 1)
        return piece[at:] + random_.choice(pieces)
    return piece


def events(seed: int, count: int) -> Iterator[dict[str, Any]]:
    """`count` events: single ones in any order, and pieces of real starts with some broken."""
    random_ = random.Random(seed)
    starts: list[list[dict[str, Any]]] = []
    for path in sorted(TRACES.glob("*/journal.jsonl")):
        starts.append([json.loads(line) for line in path.read_text("utf-8").splitlines()])
    real = [event for start in starts for event in random_.sample(start, min(60, len(start)))]
    pieces = [event["data"] for event in real if event["kind"] == "log"]
    t = 0.0
    made = 0
    while made < count:
        if random_.randrange(20) == 0:
            start = random_.choice(starts)
            begin = random_.randrange(len(start))
            batch = [start[0], *start[begin : begin + 60]]
            t = batch[1]["t"]
        else:
            t += random_.choice((0.0, 0.01, 0.5, 2.0, 40.0, -30.0))
            batch = [_single(random_, t, real, pieces)]
        for event in batch[: count - made]:
            made += 1
            yield _broken(random_, event) if random_.randrange(16) == 0 else event


def _single(
    random_: random.Random, t: float, real: list[dict[str, Any]], pieces: list[str]
) -> dict[str, Any]:
    roll = random_.randrange(4)
    if roll < 2:
        return {**random_.choice(real), "t": t}
    if roll == 2:
        return {"t": t, "kind": "log", "data": _text(random_, pieces)}
    event = {random_.choice(FIELDS): _value(random_) for _ in range(random_.randrange(6))}
    event["kind"] = random_.choice(KINDS)
    event.setdefault("t", t)
    return event


def _broken(random_: random.Random, event: dict[str, Any]) -> dict[str, Any]:
    """The event with one field changed, gone, or of another kind."""
    event = dict(event)
    roll = random_.randrange(3)
    if roll == 0:
        event[random_.choice(list(event))] = _value(random_)
    elif roll == 1:
        event.pop(random_.choice(list(event)))
    else:
        event["kind"] = random_.choice(KINDS)
    return event
