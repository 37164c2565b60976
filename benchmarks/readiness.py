"""How soon the watch says what it sees: over the recorded starts of real engines.

    python3 -m benchmarks.readiness [--evidence] [FOLDER with traces, default tests/traces]

From the journals that `sglangctl watch` wrote itself beside the real engine (real-*), by their own
clock: seconds from the event that shows something to the verdict that says it. Limits: serving
1.0 s after the engine called itself ready; failed 2 s after the exit; port-taken 2 s after the log
line; a stopped rank named 5 s, a dead one 2 s after the event that shows it.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from benchmarks import evidence
from sglangctl.state import journal

Event = dict[str, Any]
UP = ("serving", "ready", "degraded")
LIMITS_S = {"serving": 1.0, "failed": 2.0, "port-taken": 2.0, "rank-stopped": 5.0, "rank-died": 2.0}


def first(events: list[Event], found: Callable[[Event], bool], after: float = 0.0) -> float | None:
    """The t of the first such event."""
    return next((float(e["t"]) for e in events if e["t"] >= after and found(e)), None)


def verdict(cause: str) -> Callable[[Event], bool]:
    return lambda event: event["kind"] == "verdict" and event["cause"] == cause


def log(words: str) -> Callable[[Event], bool]:
    return lambda event: event["kind"] == "log" and words in event["data"]


def state(letters: str) -> Callable[[Event], bool]:
    return lambda event: (
        event["kind"] == "process"
        and any(
            process["state"] in letters and process["name"].startswith("sglang::")
            for process in event.get("processes", [])
        )
    )


def delays(events: list[Event]) -> dict[str, float]:
    """What this journal shows of LIMITS_S, in seconds; negative: said before that event."""
    pairs = {
        "serving": (
            first(events, log("ready to roll")),
            first(events, lambda e: e["kind"] == "verdict" and e["outcome"] in UP),
        ),
        "failed": (
            first(events, lambda e: e["kind"] == "exit"),
            first(events, lambda e: e["kind"] == "verdict" and e["outcome"] == "failed"),
        ),
        "port-taken": (
            first(events, log("address already in use")),
            first(events, verdict("port-taken")),
        ),
        "rank-stopped": (first(events, state("T")), first(events, verdict("rank-stopped"))),
        "rank-died": (
            first(events, lambda e: state("Z")(e) or log("crashed with exit code")(e)),
            first(events, verdict("rank-died")),
        ),
    }
    return {
        name: round(said - shown, 3)
        for name, (shown, said) in pairs.items()
        if shown is not None and said is not None
    }


def main(arguments: list[str]) -> int:
    wanted = evidence.asked(arguments)
    folder = Path(arguments[0]) if arguments else evidence.ROOT / "tests/traces"
    found: dict[str, dict[str, float]] = {name: {} for name in LIMITS_S}
    for path in sorted(folder.glob("real-*/journal.jsonl")):
        for name, seconds in delays(list(journal.read(path))).items():
            found[name][path.parent.name] = seconds
    missing = [name for name, traces in found.items() if not traces]
    worst = {name: max(traces.values()) for name, traces in found.items() if traces}
    figures = {"worst_s": worst, "limits_s": LIMITS_S, "not_shown": missing, "traces": found}
    evidence.keep("readiness", figures, wanted)
    late = [name for name, seconds in worst.items() if seconds > LIMITS_S[name]]
    return 1 if late or missing else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
