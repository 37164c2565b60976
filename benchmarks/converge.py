"""What a deploy that has nothing to do costs, beside pyinfra's least and an Ansible playbook.

    python3 -m benchmarks.converge --hosts 10 [--rounds 5] [--fleet 500] [--json] [--evidence]

--hosts container hosts are made and deployed to, with the stand-in engine. Then alternating, --rounds
times each: `pyinfra -y ... deploys/sglang.py`, `pyinfra ... exec -- true` with the same inventory, and
benchmarks/converging/playbook.yml, which checks the same. Medians of the wall clock. --fleet counts the
controller's processor time with so many hosts, by one host's recorded answer. --without-ansible leaves
its side out. With --evidence the figures are kept in docs/evidence/converge*.json, from which
`python3 -m benchmarks.converging.plots` draws pictures. The last line is one JSON
object: {"hosts", "remote_commands" (a host), "noop_vs_exec", "noop_vs_ansible"}, and the rest behind
it with --json. Exit status 1 over a limit of LIMITS.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from benchmarks import evidence
from benchmarks.converging import ansible, fleet
from roles.inventory.load import load_inventory
from roles.stages.desired import DesiredHost, make
from tests.container.deploying import changed, deploy, ssh_data, write_inventory
from tests.hosts.host import Host
from tests.hosts.say import ROOT
from tests.hosts.standins.install import install_into
from tests.support.standin_host import ENGINE

AT_TEN_HOSTS = {"remote_commands": 2.0, "noop_vs_exec": 1.6, "noop_vs_ansible": 1 / 15}
LIMITS = {1: {"remote_commands": 2.0, "noop_vs_exec": 1.4}, 10: AT_TEN_HOSTS}
"""By number of hosts. Of other numbers only the remote commands of a host have a limit."""
FLEET_LIMIT_S = 6.0
"""Of the controller's processor time, for 500 hosts."""
SESSIONS = (
    r"journalctl --boot --identifier=sshd --grep='Starting session: (command|subsystem)' | wc -l"
)


def made(number: int) -> Host:
    """A container host with the stand-ins, whose sshd tells what is run through it."""
    host = Host.create(f"sglang-converge-{os.getpid()}-{number}", gpus=2)
    install_into(host)
    host.exec("tee", "/etc/ssh/sshd_config.d/sessions.conf", input="LogLevel VERBOSE\n")
    host.exec("systemctl", "restart", "ssh")
    return host


def sessions(host: Host) -> int:
    """How many commands were run over ssh since the boot."""
    return int(host.exec("sh", "-c", SESSIONS).stdout)


def desired_of(inventory: Path, name: str) -> DesiredHost:
    (entry,) = [one for one in load_inventory(inventory).hosts if one.name == name]
    if entry.spec is None:
        raise SystemExit(f"the benchmark's own inventory is wrong: {entry.mistakes}")
    return make(entry.spec)


def pyinfra(inventory: Path, *arguments: str) -> Callable[[], None]:
    """One run of pyinfra; SystemExit with its output where it fails."""
    environment = {**os.environ, "SGLANG_INVENTORY": str(inventory), "PYINFRA_PROGRESS": "off"}
    environment["SGLANG_REPORTS"] = str(inventory.parent / "reports")
    argv = [sys.executable, "-m", "pyinfra", "-y", "inventory.py", *arguments]
    return lambda: run(argv, ROOT, environment)


def run(argv: list[str], folder: Path, environment: dict[str, str] | None = None) -> None:
    done = subprocess.run(
        argv, cwd=folder, env=environment, stdin=subprocess.DEVNULL, capture_output=True, text=True
    )
    if done.returncode != 0:
        raise SystemExit(done.stdout + done.stderr)


def playbook(folder: Path) -> None:
    """One run of the playbook, which must find nothing to do."""
    done = subprocess.run(
        ansible.command(folder),
        cwd=folder,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
    )
    found = [line for line in done.stdout.splitlines() if "changed=" in line]
    if done.returncode != 0 or not all("changed=0 " in line for line in found):
        raise SystemExit(done.stdout + done.stderr)


def alternating(ways: dict[str, Callable[[], None]], rounds: int) -> dict[str, list[float]]:
    """Seconds of each way, one after the other in every round."""
    taken: dict[str, list[float]] = {name: [] for name in ways}
    for _ in range(rounds):
        for name, way in ways.items():
            began = time.perf_counter()
            way()
            taken[name].append(round(time.perf_counter() - began, 3))
    return taken


def measured(hosts: list[Host], folder: Path, rounds: int, with_ansible: bool) -> dict[str, Any]:
    """Deploy to the hosts, then measure; also leaves the recorded answer in `folder`."""
    section = {"engines": {"chat": ENGINE}}
    inventory = write_inventory(
        folder / "hosts.yml", {one.ip: {"ssh": ssh_data(one), **section} for one in hosts}
    )
    done = deploy(inventory, "-y")
    if done.returncode != 0:
        raise SystemExit(done.stdout + done.stderr)
    desired = desired_of(inventory, hosts[0].ip)
    fleet.record(hosts[0], desired, folder / "answer")
    noop = pyinfra(inventory, "deploys/sglang.py")
    before = [sessions(one) for one in hosts]
    again = deploy(inventory, "-y", "--json")
    if again.returncode != 0 or changed(again) != {}:
        raise SystemExit(f"the second deploy changed something: {again.stdout}{again.stderr}")
    commands = [sessions(one) - then for one, then in zip(hosts, before, strict=True)]
    ways = {"noop": noop, "exec": pyinfra(inventory, "exec", "--", "true")}
    if with_ansible:
        ansible.write(folder, hosts, desired)
        playbook(folder)  # the first one compiles, and opens the connections
        ways["ansible"] = lambda: playbook(folder)
    taken = alternating(ways, rounds)
    median = {name: statistics.median(seconds) for name, seconds in taken.items()}
    return {
        "hosts": len(hosts),
        "remote_commands": max(commands),
        "noop_vs_exec": round(median["noop"] / median["exec"], 2),
        "noop_vs_ansible": round(median["noop"] / median["ansible"], 3) if with_ansible else None,
        "median_s": median,
        "seconds": taken,
    }


def of_fleet(sizes: list[int], folder: Path) -> list[dict[str, float]]:
    """The controller's processor time at each size, of the deploy and of `exec -- true`."""
    found = []
    for size in sizes:
        names = [f"host-{number}.example" for number in range(size)]
        section = {"engines": {"chat": ENGINE}}
        inventory = write_inventory(folder / "fleet.yml", {name: section for name in names})
        noop, wall = fleet.processor_s(inventory, folder / "answer")
        least, _ = fleet.processor_s(inventory, folder / "answer", "exec", "--", "true")
        found.append(
            {
                "hosts": size,
                "processor_s": round(noop, 2),
                "wall_s": round(wall, 2),
                "exec_processor_s": round(least, 2),
            }
        )
    return found


def over(figures: dict[str, Any]) -> list[str]:
    """The limits that the figures are over, a line each."""
    limits = LIMITS.get(figures["hosts"], {"remote_commands": 2.0})
    found = [
        f"{name}: {figures[name]}, and at most {limit:.3g} is wanted"
        for name, limit in limits.items()
        if figures[name] is not None and figures[name] > limit
    ]
    return found + [
        f"{one['hosts']} hosts: {one['processor_s']} s of processor time, at most {FLEET_LIMIT_S}"
        for one in figures.get("fleet", [])
        if one["hosts"] <= 500 and one["processor_s"] > FLEET_LIMIT_S
    ]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--hosts", type=int, default=10)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--fleet", type=int, nargs="*", default=[])
    parser.add_argument("--without-ansible", action="store_true")
    parser.add_argument("--json", action="store_true")
    parser.add_argument(evidence.OPTION, action="store_true")
    args = parser.parse_args()
    # As anybody's Python does, all sides keep what they have compiled.
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    if not args.without_ansible:
        ansible.program_of()
    hosts: list[Host] = []
    with tempfile.TemporaryDirectory(prefix="converge-") as name:
        folder = Path(name)
        try:
            with ThreadPoolExecutor(2) as pool:
                for host in pool.map(made, range(args.hosts)):
                    hosts.append(host)
            figures = measured(hosts, folder, args.rounds, not args.without_ansible)
        finally:
            for host in hosts:
                host.remove()
        if args.fleet:
            figures["fleet"] = of_fleet(args.fleet, folder)
    if args.evidence:
        kept = "converge" if args.hosts == 10 else f"converge-{args.hosts}"
        evidence.keep(kept, figures, True)
    for line in over(figures):
        print(line, file=sys.stderr)
    first = ("hosts", "remote_commands", "noop_vs_exec", "noop_vs_ansible")
    print(json.dumps(figures if args.json else {key: figures[key] for key in first}))
    return 1 if over(figures) else 0


if __name__ == "__main__":
    sys.exit(main())
