"""The host that is checked, its inventory, and one deploy with what it said and took."""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

import yaml

from tests.hosts.say import ROOT, captured

ENGINE = "target"
UNIT = f"sglang-{ENGINE}.service"
HOLDER = "vllm-kimi.service"
FILES = "/opt/gpu-check"
"""Where holder.py lies on the host."""
DEPLOY_S = 420.0


class Runs(Protocol):
    """What is needed of a host: a command as root, with text on its standard input."""

    def exec(
        self,
        *argv: str,
        check: bool = True,
        input: str | None = None,
        timeout: float = 120.0,
    ) -> subprocess.CompletedProcess[str]: ...


@dataclass(frozen=True)
class SshHost:
    """A host by ssh, from the `ssh` section of an inventory (hostname, port, user, key, known_hosts)."""

    ssh: dict[str, Any]

    def exec(
        self,
        *argv: str,
        check: bool = True,
        input: str | None = None,
        timeout: float = 120.0,
    ) -> subprocess.CompletedProcess[str]:
        command = ["ssh", "-oBatchMode=yes", "-oLogLevel=ERROR"]
        command += [f"-p{self.ssh.get('port', 22)}", f"-l{self.ssh.get('user', 'root')}"]
        if "key" in self.ssh:
            command.append(f"-i{self.ssh['key']}")
        if "known_hosts" in self.ssh:
            command.append(f"-oUserKnownHostsFile={self.ssh['known_hosts']}")
        # sshd hands the words to a shell.
        command += [self.ssh["hostname"], "--", shlex.join(argv)]
        done = captured(command, input, timeout=timeout)
        if check and done.returncode != 0:
            raise AssertionError(
                f"{argv}: exit status {done.returncode}: {done.stderr or done.stdout}"
            )
        return done


@dataclass
class Deployed:
    """One run of a deploy: exit status, seconds, what it printed, its report."""

    status: int
    seconds: float
    text: str
    report: dict[str, Any]

    @property
    def engine(self) -> dict[str, Any]:
        """The engine's entry in the report; empty where the run did not come so far."""
        hosts = self.report.get("report", [])
        return next((engine for host in hosts for engine in host["engines"]), {})

    @property
    def changed(self) -> list[str]:
        """Names of the operations that changed the host."""
        hosts = self.report.get("report", [])
        return [one["name"] for host in hosts for one in host["operations"] if one["changed"]]

    def end(self, lines: int = 30) -> str:
        return "\n".join(self.text.splitlines()[-lines:])


@dataclass
class Bench:
    """Everything a check needs.

    + host: the host
    + address, ssh: its entry in an inventory
    + base: the engine of the inventory that all checks vary (model, version, install, flags, ...)
    + python: a Python on the host with torch, for what holds GPU memory; None without a GPU
    + models: the folder of models.py's models on the host
    + out: where journals and output are kept
    + reboot: a command on this machine that cuts the host's power and boots it; None: not possible
    + outside: this machine's own processes have the host's GPUs, and the host cannot see them
    """

    host: Runs
    address: str
    ssh: dict[str, Any]
    base: dict[str, Any]
    python: str | None
    models: str
    out: Path
    reboot: list[str] | None = None
    outside: bool = False
    count: int = field(default=0)

    def deploy(self, script: str = "sglang", dry: bool = False, **changes: Any) -> Deployed:
        """`pyinfra inventory.py deploys/SCRIPT.py -y` with the base engine and these changes to it."""
        self.count += 1
        while (self.out / f"deploy-{self.count}.log").exists():
            self.count += 1  # of a run of other checks
        engine = merge(self.base, changes)
        inventory = {"hosts": {self.address: {"ssh": self.ssh, "engines": {ENGINE: engine}}}}
        path = self.out / "inventory.yml"
        path.write_text(yaml.safe_dump(inventory, sort_keys=False))
        reports = self.out / f"reports-{self.count}"
        argv = [sys.executable, "-m", "pyinfra", "inventory.py", f"deploys/{script}.py"]
        begin = time.monotonic()
        done = subprocess.run(
            [*argv, "--dry" if dry else "-y"],
            cwd=ROOT,
            env={
                **os.environ,
                "SGLANG_INVENTORY": str(path),
                "SGLANG_REPORTS": str(reports),
                "PYINFRA_PROGRESS": "off",
            },
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            timeout=DEPLOY_S,
        )
        seconds = time.monotonic() - begin
        text = re.sub(r"\x1b\[[0-9;]*[A-Za-z]", "", done.stdout)
        (self.out / f"deploy-{self.count}.log").write_text(text)
        found = sorted(reports.glob("*/report.json"))
        report = json.loads(found[-1].read_text()) if found else {}
        return Deployed(done.returncode, seconds, text, report)

    def sglangctl(self, *argv: str, timeout: float = 120.0) -> tuple[int, str]:
        done = self.host.exec("sglangctl", *argv, check=False, timeout=timeout)
        return done.returncode, done.stdout

    def status(self) -> dict[str, Any]:
        text = self.sglangctl("status", ENGINE, "--json")[1]
        return dict(json.loads(text)["status"][0]) if text.strip() else {}

    def wait_until(self, outcomes: tuple[str, ...], seconds: float) -> float:
        """Seconds until `sglangctl status` says one of these. Fails after `seconds`."""
        begin = time.monotonic()
        while True:
            now = self.status()
            passed = time.monotonic() - begin
            if now.get("outcome") in outcomes:
                return round(passed, 2)
            assert passed < seconds, f"not {outcomes} after {seconds} s, but {now.get('outcome')}"
            time.sleep(0.1)

    def keep_journal(self, name: str) -> None:
        """Bring the present start's journal home, as OUT/traces/NAME/journal.jsonl."""
        text = self.sglangctl("journal", ENGINE)[1]
        folder = self.out / "traces" / name
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "journal.jsonl").write_text(text)


def merge(base: dict[str, Any], changes: dict[str, Any]) -> dict[str, Any]:
    """`base` with `changes`, mapping by mapping; None takes a key away."""
    result = dict(base)
    for key, value in changes.items():
        if value is None:
            result.pop(key, None)
        elif isinstance(value, dict) and isinstance(result.get(key), dict):
            result[key] = merge(result[key], value)
        else:
            result[key] = value
    return result
