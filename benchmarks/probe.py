"""How long `sglangctl probe` takes, besides the driver's own time. Run as root:

python3 -m benchmarks.probe [rounds, default 20] [--evidence]

Three ways: the zipapp as the host role installs it, the same from standard input (a first dry run),
and Python alone, for comparison. Prints one JSON object; the limit is 300 ms.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from benchmarks import evidence
from roles.remote import program

LIMIT_S = 0.3
REQUEST = json.dumps(
    {
        "files": {f"/etc/sglangctl/engines/{number}.json": None for number in range(20)},
        "paths": ["/", "/var/lib", "/opt"],
        "users": ["root", "sglang"],
        "plan": ["kimi"],
        "engine_configs": [
            {
                "v": 1,
                "name": "kimi",
                "unit": "sglang-kimi.service",
                "user": "sglang",
                "port": 8000,
                "listen": "127.0.0.1",
                "model": "/models/kimi",
                "served_name": "kimi",
                "replaces": ["vllm-kimi.service"],
            }
        ],
    }
)


def timed(argv: list[str], text: str | None, rounds: int) -> dict[str, float]:
    """Median and least of the wall clock, and the median of processor time, in seconds."""
    seconds, cpu = [], []
    for _ in range(rounds):
        began, before = time.perf_counter(), os.times()
        subprocess.run(argv, input=text, text=True, capture_output=True, check=True)
        seconds.append(time.perf_counter() - began)
        cpu.append(sum(os.times()[2:4]) - sum(before[2:4]))
    return {
        "median_s": round(statistics.median(seconds), 3),
        "least_s": round(min(seconds), 3),
        "processor_median_s": round(statistics.median(cpu), 3),
    }


def driver_s() -> float:
    """What the driver itself takes, asked in a process of its own."""
    code = (
        "import sys, time; sys.path.insert(0, sys.argv[1]); from sglangctl.gpu import gpus;"
        "began = time.perf_counter(); gpus.read(); print(time.perf_counter() - began)"
    )
    root = str(Path(__file__).resolve().parents[1])
    done = subprocess.run(
        [sys.executable, "-I", "-c", code, root], capture_output=True, text=True, check=True
    )
    return float(done.stdout)


def main(arguments: list[str]) -> int:
    wanted = evidence.asked(arguments)
    rounds = int(arguments[0]) if arguments else 20
    with tempfile.TemporaryDirectory() as folder:
        zipapp = f"{folder}/sglangctl.pyz"
        Path(zipapp).write_bytes(program.archive())
        python = sys.executable
        probe = ["probe", "--request", REQUEST]
        found = {
            "python_alone": timed([python, "-I", "-S", "-c", "1"], None, rounds),
            "installed": timed([python, "-I", "-S", zipapp, *probe], None, rounds),
            "from_standard_input": timed([python, "-I", "-", *probe], program.loader(), rounds),
        }
    driver = round(driver_s(), 3)
    evidence.keep("probe", {**found, "driver_s": driver, "limit_s": LIMIT_S}, wanted)
    return 0 if found["installed"]["median_s"] - driver < LIMIT_S else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
