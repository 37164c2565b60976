"""How long `sglangctl holders` takes on a host with many processes. Run as root:

python3 -m benchmarks.holders [number of processes, default 5000] [rounds, default 5] [--evidence]

Starts that many sleeping processes (each with a few open files, eight of them with a device),
then runs the command as an operator would, and prints one JSON object. The limit is 1 s.
"""

from __future__ import annotations

import json
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from benchmarks import evidence

ROOT = Path(__file__).resolve().parents[1]
LIMIT_S = 1.0
COMMAND = ("holders", "--json")
RUN = """
import sys
sys.path.insert(0, sys.argv.pop(1))
from sglangctl.proc import open_files
open_files.DEVICES = sys.argv.pop(1)
from sglangctl.cli import main
sys.exit(main(sys.argv[1:]))
"""


def crowd(number: int, devices: list[str]) -> int:
    """Fork `number` processes that sleep, as one process group; returns its leader."""
    reader, writer = os.pipe()
    leader = os.fork()
    if leader:
        os.close(writer)
        assert os.read(reader, 1) == b"x", "could not start that many processes"
        os.close(reader)
        return leader
    os.setpgid(0, 0)
    for at in range(number):
        if os.fork() == 0:
            for path in ["/dev/null", "/etc/passwd", "/proc/self/status", *devices[at : at + 1]]:
                os.open(path, os.O_RDONLY)
            while True:
                signal.pause()
    os.write(writer, b"x")
    while True:
        signal.pause()


def main(arguments: list[str]) -> int:
    wanted = evidence.asked(arguments)
    number, rounds = [*map(int, arguments), *(5000, 5)[len(arguments) :]]
    with tempfile.TemporaryDirectory() as folder:
        devices = [f"{folder}/nvidia{gpu}" for gpu in range(8)]
        for device in devices:
            Path(device).touch()
        leader = crowd(number, devices)
        try:
            time.sleep(1)
            seconds, cpu = [], []
            for _ in range(rounds):
                began, before = time.perf_counter(), os.times()
                done = subprocess.run(
                    [
                        sys.executable,
                        "-I",
                        "-S",
                        "-c",
                        RUN,
                        str(ROOT),
                        f"{folder}/nvidia",
                        *COMMAND,
                    ],
                    capture_output=True,
                    check=True,
                    env={"SGLANGCTL_ROOT": folder, "PATH": os.environ["PATH"]},
                )
                seconds.append(time.perf_counter() - began)
                after = os.times()
                cpu.append(sum(after[2:4]) - sum(before[2:4]))
                found = len(json.loads(done.stdout)["holders"])
                assert found == len(devices), f"{found} holders seen"
            processes = sum(name.isdigit() for name in os.listdir("/proc"))
        finally:
            os.killpg(leader, signal.SIGKILL)
            os.waitpid(leader, 0)
    median = statistics.median(seconds)
    figures = {
        "processes": processes,
        "median_s": round(median, 3),
        "processor_median_s": round(statistics.median(cpu), 3),
        "all_s": [round(value, 3) for value in seconds],
        "limit_s": LIMIT_S,
    }
    evidence.keep("holders", figures, wanted)
    return 0 if median < LIMIT_S else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
