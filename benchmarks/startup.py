"""What one event costs the phase machine: the median over the recorded starts and over a
million random ones. The watch feeds every event through it, so it must stay below 20 us.

python3 -m benchmarks.startup [--events 1000000] [--evidence]
"""

from __future__ import annotations

import argparse
import statistics
import sys
import time
from collections.abc import Iterable
from typing import Any

from benchmarks import evidence
from sglangctl.startup.fold import Startup
from sglangctl.state import journal
from tests.support import fuzz

LIMIT_US = 20.0


def cost(events: Iterable[dict[str, Any]]) -> dict[str, float]:
    """Feed all events, a new start at each launch; what one took, in microseconds."""
    spent: list[int] = []
    startup = Startup()
    clock = time.perf_counter_ns
    for event in events:
        if event.get("kind") == "launch":
            startup = Startup()
        begin = clock()
        startup.feed(event)
        spent.append(clock() - begin)
    spent.sort()
    return {
        "events": len(spent),
        "median_us": round(statistics.median(spent) / 1e3, 1),
        "mean_us": round(statistics.fmean(spent) / 1e3, 1),
        "percent_99_us": round(spent[int(len(spent) * 0.99)] / 1e3, 1),
        "worst_us": round(spent[-1] / 1e3, 1),
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--events", type=int, default=1_000_000)
    parser.add_argument("--seed", type=int, default=20261129)
    parser.add_argument(evidence.OPTION, action="store_true")
    args = parser.parse_args()
    recorded = [
        event
        for path in sorted(fuzz.TRACES.glob("*/journal.jsonl"))
        for event in journal.read(path)
        if event["kind"] != "injected"
    ]
    figures = {
        "recorded_starts": cost(recorded),
        "random_events": cost(fuzz.events(args.seed, args.events)),
    }
    evidence.keep("startup", {**figures, "limit_us": LIMIT_US}, args.evidence)
    return 0 if max(each["median_us"] for each in figures.values()) < LIMIT_US else 1


if __name__ == "__main__":
    sys.exit(main())
