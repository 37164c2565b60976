"""How much longer than the engine itself `sglangctl free` takes to free a unit.

    python3 -m benchmarks.freeing [--evidence]

In a container host: a vLLM stand-in as a unit that takes s seconds to end after SIGTERM (from its
signal to the end of its last process, by its own clock), freed by the real command. The limit is
s + 1 s. Exit status 0 within it, 1 not.
"""

from __future__ import annotations

import argparse
import os
import sys
import time

from benchmarks import evidence
from tests.container.freeing import Freeing
from tests.hosts.host import Host

LIMIT_S = 1.0
ENDS_S = (0.0, 0.5, 2.0, 5.0)
ROUNDS = 3


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(evidence.OPTION, action="store_true")
    args = parser.parse_args()
    rounds = []
    host = Host.create(f"sglang-bench-{os.getpid()}", gpus=2)
    try:
        box = Freeing.prepare(host)
        box.configure(limits={"stop_units_s": 30.0})
        for ends_s in ENDS_S * ROUNDS:
            box.start_vllm(VLLM_STANDIN_STOP_S=ends_s)
            # Both in the host: docker exec's own time belongs to neither.
            script = "date +%s.%N; sglangctl free kimi --json >/tmp/free.json; date +%s.%N"
            began, ended = map(float, box.sh(script).split())
            rounds.append({"engine_ends_in_s": ends_s, "free_s": round(ended - began, 3)})
            assert '"verdict": "free"' in box.sh("cat /tmp/free.json"), box.sh("cat /tmp/free.json")
            box.clean()
            time.sleep(0.5)
    finally:
        host.remove()
    over = [each["free_s"] - each["engine_ends_in_s"] for each in rounds]
    figures = {"rounds": rounds, "worst_over_s": round(max(over), 3), "limit_over_s": LIMIT_S}
    evidence.keep("freeing", figures, args.evidence)
    return 0 if max(over) <= LIMIT_S else 1


if __name__ == "__main__":
    sys.exit(main())
