"""The phases and the outcomes of a start: closed lists, and what groups of them mean."""

from __future__ import annotations

PHASES = {
    "launching": "started, and nothing heard of it yet",
    "importing": "Python imports the engine and its kernels (15 to 60 s, without a line)",
    "connecting": "the ranks find one another (NCCL, gloo)",
    "loading": "weights go to the GPUs: the target's shards, then the drafter's",
    "allocating": "the key/value cache is sized and allocated",
    "capturing": "CUDA graphs are captured, kernels compiled where the cache is cold",
    "binding": "the HTTP server starts",
    "warming": "the port answers, the engine's own first request runs",
    "serving": "requests are answered",
}
ORDER = {name: index for index, name in enumerate(PHASES)}
"""Phase -> its place among them: a start goes through them in this order."""

OUTCOMES = {
    "pending": "on its way, no verdict yet",
    "serving": "it answers; not yet proven by a generation of ours",
    "ready": "proven: the port is ours, every rank lives, one real generation came back",
    "degraded": "ready, with something that should be better (the drafter is of no use)",
    "unresponsive": "it served and no longer answers",
    "stalled": "nothing moves any more; a report, not a sentence: it may still come",
    "deadline": "the start's time budget ran out while things still moved",
    "failed": "certain: it will not serve",
}
PROVEN = frozenset(["ready", "degraded"])
"""A generation has proved that it serves."""
SERVED = PROVEN | {"serving"}
"""The engine answers."""
GIVEN_UP = frozenset(["failed", "deadline"])
"""The start came to nothing."""
