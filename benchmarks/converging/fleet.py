"""The controller's own cost with many hosts: one host's recorded answer instead of ssh.

What is left out is the link: the connection and the encryption of what is sent. (pyinfra's @fake loads
all its connectors again for each host, which it does not for ssh.)
"""

from __future__ import annotations

import json
import os
import resource
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from pyinfra.api import StringCommand
from pyinfra.connectors.ssh import SSHConnector
from pyinfra.connectors.util import CommandOutput, OutputLine

from roles.remote.snapshot import HostProbe
from roles.stages.desired import DesiredHost
from tests.hosts.host import Host
from tests.hosts.say import ROOT

ANSWER = "CONVERGE_ANSWER"
"""The variable that names the file with the recorded answer."""
INVENTORY = "benchmarks/converging/fleet_inventory.py"


def record(host: Host, desired: DesiredHost, file: Path) -> None:
    """Keep what the host answers to the probe of a deploy of `desired`."""
    command = str(HostProbe().command())
    done = subprocess.run(
        host.ssh(command),
        input=json.dumps(desired.request),
        capture_output=True,
        text=True,
        check=True,
    )
    file.write_text(done.stdout, encoding="utf-8")


def answer_for_ssh() -> None:
    """From now on in this process every host is connected to at once, and every probe is answered
    with what was recorded; other commands succeed and say nothing."""
    answer = Path(os.environ[ANSWER]).read_text(encoding="utf-8").splitlines()

    def said(self: SSHConnector, command: StringCommand, **_: Any) -> tuple[bool, CommandOutput]:
        lines = answer if "probe --request" in str(command) else []
        return True, CommandOutput([OutputLine("stdout", line) for line in lines])

    SSHConnector.connect = lambda self: None
    SSHConnector.run_shell_command = said


def processor_s(inventory: Path, answer: Path, *arguments: str) -> tuple[float, float]:
    """Processor time and wall clock in seconds of one `pyinfra -y ... deploys/sglang.py`."""
    environment = {**os.environ, "SGLANG_INVENTORY": str(inventory), ANSWER: str(answer)}
    environment.update(PYINFRA_PROGRESS="off", SGLANG_REPORTS=str(inventory.parent / "reports"))
    operation = arguments or ("deploys/sglang.py",)
    began, before = time.perf_counter(), resource.getrusage(resource.RUSAGE_CHILDREN)
    done = subprocess.run(
        [sys.executable, "-m", "pyinfra", "-y", INVENTORY, *operation],
        cwd=ROOT,
        env=environment,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
    )
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    if done.returncode != 0:
        raise SystemExit(done.stdout + done.stderr)
    spent = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return spent, time.perf_counter() - began
