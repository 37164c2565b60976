"""Does the acceptance tell an engine that is 20 % slower from noise?

    python3 -m benchmarks.acceptance [--evidence]

Two stand-in engines on this machine, one with 100 tokens/s and one with 80. In each of 20 rounds the first
is measured and accepted, then measured again (no alarm is right), then the second is measured (an
alarm is right). As the watch does it: a measurement that looks slower is repeated once. What else runs
on the machine is the noise.
"""

from __future__ import annotations

import sys
import tempfile
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from benchmarks import evidence
from sglangctl.engine.accepted import measured
from sglangctl.engine.http import Endpoint
from sglangctl.engine.load import measure
from sglangctl.state.config import Acceptance
from tests.hosts.standins.local import Machine, unpacked

ROUNDS = 20
RATES = (100.0, 80.0)
WANTED = Acceptance(concurrency=4, tokens=32, limit_s=6.0)


def rounds(where: list[Endpoint]) -> dict[str, Any]:
    """How often each engine was called slower."""
    false = told = unsure = 0
    ratios = []
    for number in range(ROUNDS):
        kept = measure(where[0], "tiny", WANTED).as_dict()
        kept["speeds"] = list(kept["speeds"])
        _, same = measured(where[0], "tiny", WANTED, kept)
        load, slower = measured(where[1], "tiny", WANTED, kept)
        false += bool(same.worse)
        told += bool(slower.worse)
        unsure += bool(slower.unsure or same.unsure)
        now, then = load.speeds[0].pace_p20_s, kept["speeds"][0]["pace_p20_s"]
        ratios.append(round(then / now, 3) if now else 0.0)
        for line in same.worse:
            print(f"     {line}")
        print(f"{number + 1:>3}: same {'ALARM' if same.worse else 'ok'}, ", end="")
        print(f"slower {'told' if slower.worse else 'MISSED'} ({ratios[-1]:.2f})", flush=True)
    return {
        "rounds": ROUNDS,
        "told": told,
        "false_alarms": false,
        "with_a_note_on_noise": unsure,
        "speed_of_the_slower_one": {"lowest": min(ratios), "highest": max(ratios)},
    }


def main() -> int:
    wanted = evidence.asked(sys.argv)
    with tempfile.TemporaryDirectory() as folder, ExitStack() as stack:
        site = unpacked(Path(folder))
        machine = Machine(Path(folder), site)
        stack.callback(machine.end_all)
        where = []
        for rate in RATES:
            run = machine.start(
                *("--device", "cpu", "--served-model-name", "tiny"), STANDIN_TOKENS_PER_S=str(rate)
            )
            run.ready()
            where.append(Endpoint("127.0.0.1", run.port))
        result = rounds(where)
    evidence.keep("acceptance", {"tokens_per_s": list(RATES), **result}, wanted)
    right = result["told"] == ROUNDS and not result["false_alarms"]
    return 0 if right else 1


if __name__ == "__main__":
    sys.exit(main())
