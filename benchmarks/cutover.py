"""How long nothing serves around a switch, beyond what the engines themselves take.

    python3 -m benchmarks.cutover [--gated] [--evidence]

In a container host, with the stand-in engine: a release takes the place of another one, and a release that
fails gives way to the one before it. A client in the host asks the engine every 20 ms and looks whether its
main process is there; all times are of one clock. The limits: from the old engine's last answer to the launch
of the new one at most 2 s more than the old one takes to exit; from `failed` to the old engine's launch at
most 3 s.

--gated: the real engine on the processor, plain and gated in turns. The limits: from the old engine's last
answer to the new one's first, gated, at most 7 s more than the old one takes to exit (2 s for the switch, 5 s
for the engine); and the quickest plain change takes at least twice as long as the slowest gated one.

Exit status 0 within the limits, 1 not.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
from pathlib import Path
from typing import Any

from benchmarks import evidence
from tests.container.deploying import deploy, ssh_data, write_inventory
from tests.container.real_engine import WANTED
from tests.hosts.host import Host
from tests.hosts.standins.install import install_into

OVER_EXIT_S = 2.0
BACK_S = 3.0
STOPS_S = (0.5, 2.0, 5.0)
"""How long the old engine takes from SIGTERM to its last line."""
ROUNDS = 3
GATED_OVER_EXIT_S = 7.0
GAIN = 2.0
GATED_ROUNDS = 3
STANDIN: dict[str, Any] = {
    "model": {"path": "/models/tiny"},
    "gpus": [0],
    "kernel": {"source": "none"},
    "install": {"pip_arguments": ["--no-index", "--find-links=/opt/standins/wheels"]},
    "readiness": {"limits": {"start_s": 60}},
}
CLIENT = """
import http.client, json, os, pwd, sys, time
user, port, out = pwd.getpwnam("sglang-chat").pw_uid, 30000, sys.argv[1]
seen, gone, answers = {}, {}, []
def is_engine(pid):
    # Its main process. Helpers that systemd runs have its user too, and a fork has its command line.
    try:
        with open(f"/proc/{pid}/cmdline", "rb") as file:
            ours = b"sglang.launch_server" in file.read()
        with open(f"/proc/{pid}/stat") as file:
            return ours and file.read().rpartition(")")[2].split()[1] == "1"
    except OSError:
        return False
while not os.path.exists(out + ".stop"):
    now = time.monotonic()
    here = set()
    for name in os.listdir("/proc"):
        if name.isdigit():
            try:
                if os.stat(f"/proc/{name}").st_uid == user:
                    here.add(int(name))
            except OSError:
                pass
    for pid in here - seen.keys():
        if is_engine(pid):
            seen[pid] = now
    for pid in seen.keys() - here - gone.keys():
        gone[pid] = now
    try:
        link = http.client.HTTPConnection("127.0.0.1", port, timeout=1)
        link.request("GET", "/v1/models")
        if link.getresponse().status == 200:
            answers.append(time.monotonic())
        link.close()
    except OSError:
        pass
    time.sleep(0.02)
with open(out, "w") as file:
    json.dump({"launches": list(seen.values()), "gone": list(gone.values()), "answers": answers}, file)
"""
FAILED = """
import glob, json, sys
last = sorted(glob.glob("/var/lib/sglangctl/chat/starts/*/journal.jsonl"))
for path in reversed(last):
    for line in open(path):
        event = json.loads(line)
        if event["kind"] == "verdict" and event["outcome"] == "failed":
            print(event["t"]); sys.exit()
sys.exit("no start failed")
"""


class Fleet:
    """One host, its inventory, and the client in it."""

    def __init__(self, host: Host, folder: Path, engine: dict[str, Any]) -> None:
        self.host, self.folder, self.engine = host, folder, engine
        host.exec("tee", "/root/client.py", input=CLIENT)

    def deploy(self, cutover: str = "auto", **environment: Any) -> int:
        section = {
            "ssh": ssh_data(self.host),
            "engines": {"chat": {**self.engine, "cutover": cutover, "environment": environment}},
        }
        inventory = write_inventory(self.folder / "hosts.yml", {self.host.ip: section})
        return deploy(inventory, "-y").returncode

    def watched(
        self, cutover: str = "auto", **environment: Any
    ) -> tuple[int, dict[str, list[float]]]:
        """Exit status of a deploy, and what the client saw meanwhile."""
        self.host.exec("rm", "-f", "/run/seen", "/run/seen.stop")
        client = ("systemd-run", "--unit=client", "--collect", "--quiet")
        self.host.exec(*client, "python3", "/root/client.py", "/run/seen")
        status = self.deploy(cutover, **environment)
        self.host.exec("touch", "/run/seen.stop")
        wait = "while systemctl is-active -q client.service; do sleep 0.1; done; cat /run/seen"
        seen: dict[str, list[float]] = json.loads(self.host.exec("sh", "-c", wait).stdout)
        return status, seen


def cut_over(seen: dict[str, list[float]]) -> dict[str, float]:
    """From one engine to the next: the client saw the old one's launch first, when it began to look. A
    gated one is launched while the old one serves."""
    launch, exited = seen["launches"][1], seen["gone"][0]
    last = max(at for at in seen["answers"] if at <= exited)
    again = min(at for at in seen["answers"] if at > max(exited, launch))
    return {
        "old_exit_s": round(exited - last, 3),
        "last_answer_to_launch_s": round(launch - last, 3),
        "over_exit_s": round(launch - exited, 3),
        "without_answer_s": round(again - last, 3),
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--gated", action="store_true", help="the real engine, plain and gated")
    parser.add_argument(evidence.OPTION, action="store_true")
    args = parser.parse_args()
    return gated(args.evidence) if args.gated else standin(args.evidence)


def gated(keep: bool) -> int:
    """Exit status of the real engine's side."""
    found: dict[str, list[dict[str, float]]] = {"plain": [], "gated": []}
    host = Host.create(f"sglang-bench-{os.getpid()}", image="engine")
    try:
        with tempfile.TemporaryDirectory() as folder:
            fleet = Fleet(host, Path(folder), WANTED)
            for number in (-2, -1):  # the first switch moves it to a slot
                assert fleet.deploy(ROUND=number) == 0
            for number in range(GATED_ROUNDS):
                for kind in ("plain", "gated"):
                    status, seen = fleet.watched(kind, ROUND=f"{kind}-{number}")
                    assert status == 0
                    found[kind].append(cut_over(seen))
    finally:
        host.remove()
    over = max(one["without_answer_s"] - one["old_exit_s"] for one in found["gated"])
    quickest = min(one["without_answer_s"] for one in found["plain"])
    slowest = max(one["without_answer_s"] for one in found["gated"])
    figures = {
        **found,
        "worst_gated_over_exit_s": round(over, 3),
        "limit_gated_over_exit_s": GATED_OVER_EXIT_S,
        "least_gain": round(quickest / slowest, 2),
        "limit_gain": GAIN,
    }
    evidence.keep("cutover-gated", figures, keep)
    return 0 if over <= GATED_OVER_EXIT_S and quickest >= GAIN * slowest else 1


def standin(keep: bool) -> int:
    """Exit status of the stand-in's side."""
    plain, back = [], []
    host = Host.create(f"sglang-bench-{os.getpid()}", gpus=1)
    try:
        install_into(host, gpus=1)
        with tempfile.TemporaryDirectory() as folder:
            fleet = Fleet(host, Path(folder), STANDIN)
            assert fleet.deploy(STANDIN_STOP_S=STOPS_S[0], ROUND=0) == 0
            number = 0
            for _ in range(ROUNDS):
                for after in (*STOPS_S[1:], STOPS_S[0]):
                    number += 1
                    status, seen = fleet.watched(STANDIN_STOP_S=after, ROUND=number)
                    assert status == 0
                    plain.append(cut_over(seen))
                status, seen = fleet.watched(STANDIN_FAULT="rank-died", ROUND=-number)
                assert status == 1
                failing, again = seen["launches"][1:3]
                failed_t = float(host.exec("python3", "-c", FAILED).stdout)
                back.append({"failed_to_launch_s": round(again - failing - failed_t, 3)})
    finally:
        host.remove()
    over = max(one["over_exit_s"] for one in plain)
    slowest = max(one["failed_to_launch_s"] for one in back)
    figures = {
        "plain": plain,
        "back": back,
        "worst_over_exit_s": over,
        "limit_over_exit_s": OVER_EXIT_S,
        "worst_failed_to_launch_s": slowest,
        "limit_failed_to_launch_s": BACK_S,
    }
    evidence.keep("cutover", figures, keep)
    return 0 if over <= OVER_EXIT_S and slowest <= BACK_S else 1


if __name__ == "__main__":
    sys.exit(main())
