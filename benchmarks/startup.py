"""What one event costs the phase machine: the median over the recorded starts and over a
million random ones. The watch feeds every event through it, so it must stay below 20 us.

python benchmarks/startup.py [--events 1000000]
"""

from __future__ import annotations

import argparse
import statistics
import sys
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent.parent))

from sglangctl import journal
from sglangctl.startup import Startup
from tests import fuzz

LIMIT_US = 20.0


def cost(name: str, events: Iterable[dict[str, Any]]) -> float:
    """Feed all events, a new start at each launch; print and return the median, microseconds."""
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
    median = statistics.median(spent) / 1e3
    mean = statistics.fmean(spent) / 1e3
    tail = spent[int(len(spent) * 0.99)] / 1e3
    print(
        f"{name:<16} {len(spent):>8} events  median {median:6.1f} us  mean {mean:6.1f} us  "
        f"99 % below {tail:7.1f} us  worst {spent[-1] / 1e6:6.1f} ms"
    )
    return median


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--events", type=int, default=1_000_000)
    parser.add_argument("--seed", type=int, default=20261129)
    args = parser.parse_args()
    recorded = [
        event
        for path in sorted(fuzz.TRACES.glob("*/journal.jsonl"))
        for event in journal.read(path)
        if event["kind"] != "injected"
    ]
    medians = [
        cost("recorded starts", recorded),
        cost("random events", fuzz.events(args.seed, args.events)),
    ]
    return 0 if max(medians) < LIMIT_US else 1


if __name__ == "__main__":
    sys.exit(main())
