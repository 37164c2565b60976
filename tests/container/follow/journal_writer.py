"""A watch by hand: a journal of numbered lines, ten a second, that ends with serving.

journal_writer.py SECONDS. Runs as sglang-watch@demo.service beside sglang-demo.service.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time

STARTS = "/var/lib/sglangctl/demo/starts"
GPU = {"index": 0, "memory_total_mib": 97887, "utilization_pct": 0, "power_w": 80}


def invocation() -> str:
    argv = ["systemctl", "show", "-p", "InvocationID", "--value", "sglang-demo.service"]
    return subprocess.run(argv, capture_output=True, text=True, check=True).stdout.strip()


def main() -> None:
    seconds = float(sys.argv[1])
    while not invocation():
        time.sleep(0.1)
    name = time.strftime("%Y%m%dT%H%M%SZ", time.gmtime()) + "-" + invocation()
    os.makedirs(f"{STARTS}/{name}")
    os.chmod(STARTS, 0o750)  # as the watch has it: not for every user of the host
    began = time.monotonic()
    with open(f"{STARTS}/{name}/journal.jsonl", "a", buffering=1) as file:

        def write(kind: str, **fields: object) -> None:
            t = round(time.monotonic() - began, 3)
            file.write(json.dumps({"t": t, "kind": kind, **fields}) + "\n")

        write("launch", v=1, engine="sglang", port=30000)
        write("verdict", phase="importing", outcome="pending", cause=None, evidence=[])
        for number in range(int(seconds * 10)):
            write("log", data=f"line {number}\n")
            if number % 10 == 0:
                write("gpu", gpus=[{**GPU, "memory_used_mib": 100 * number}])
            time.sleep(max(0.0, began + number / 10 - time.monotonic()))
        write("socket", port=30000, owner_pid=os.getpid(), ours=True)
        write("log", data="INFO:     Uvicorn running on http://0.0.0.0:30000\n")
        time.sleep(0.5)  # an answer to a question from before the port was ours proves nothing
        write("http", path="/health", status=200, error=None, seconds=0.01)
        write("generate", status=200, seconds=0.4, text_ok=True)
        # Who follows judges nothing itself: the watch's verdict is what it goes by.
        write("verdict", phase="serving", outcome="ready", cause=None, evidence=[])
        time.sleep(100_000)


main()
