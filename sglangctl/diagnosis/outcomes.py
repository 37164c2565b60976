"""The phases and the outcomes of a start: closed lists, and what groups of them mean."""

from __future__ import annotations

PHASES = {
    "launching": "started, no sign of it yet",
    "importing": "Python imports the engine and its kernels (15 to 60 s without a log line)",
    "connecting": "the ranks connect to one another (NCCL, gloo)",
    "gated": "complete but for what takes memory, it waits to be let in (a switch beside a serving engine)",
    "loading": "weights are loaded onto the GPUs: the model's shards, then the drafter's",
    "allocating": "the key/value cache is sized and allocated",
    "capturing": "CUDA graphs are captured; kernels are compiled if the cache is empty",
    "binding": "the HTTP server starts",
    "warming": "the port answers; the engine runs its own first request. After `serving`: the proof walks the users' paths, and kernels are compiled",
    "serving": "requests are answered",
}
ORDER = {name: index for index, name in enumerate(PHASES)}
"""Phase -> its place among them: a start goes through them in this order."""

OUTCOMES = {
    "pending": "starting, no verdict yet",
    "serving": "it answers; our own generation has not proven it yet",
    "ready": "proven: the port belongs to this engine, every rank lives, a real generation succeeded, and the users' paths are quick when repeated",
    "degraded": "ready with a warning: for example, the drafter does not help",
    "unresponsive": "it served and no longer answers",
    "stalled": "no progress any more; a report, not a verdict: it may still serve",
    "deadline": "the time limit of the start passed while it still made progress",
    "failed": "final: this start has ended",
}
PROVEN = frozenset(["ready", "degraded"])
"""A generation has proved that it serves."""
SERVED = PROVEN | {"serving"}
"""The engine answers."""
GIVEN_UP = frozenset(["failed", "deadline"])
"""The start came to nothing."""
