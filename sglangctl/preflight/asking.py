"""Run in_venv.py as the staged engine will be run: its user, its environment, its sandbox.

As a unit made from the release's own, so that systemd reads the same lines in the same way; only
what is started differs, and how long it may take.
"""

from __future__ import annotations

import os
import pkgutil
import shutil
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from sglangctl.preflight.in_venv import ALL
from sglangctl.proc import command
from sglangctl.state.files import write_atomic
from sglangctl.state.paths import Paths
from sglangctl.systemd import systemctl
from sglangctl.systemd.unit_names import preflight_unit
from sglangctl.util import lazy_re
from sglangctl.util.errors import Failed, Unusable
from sglangctl.util.values import json_object

LIMIT_S = 300.0
"""The engine's imports took 15 s with a warm page cache, and 95 s on a busy host."""
STOP_S = 10.0
LARGEST = 1024 * 1024
"""Bytes of an answer, and of what is printed beside it, that are read."""
MOST = 100
"""Lines of an answer; in_venv.py writes nine at most."""
UNITS = Path("/run/systemd/system")
OURS = lazy_re.compile(
    r"(?:Type|Exec\w+|Restart\w*|SuccessExitStatus|Timeout\w+|KillMode|Standard\w+|Notify\w+"
    r"|WatchdogSec|RemainAfterExit)="
)
"""Lines of [Service] that are about how the engine is started and ended."""


@dataclass(frozen=True)
class Answer:
    """What it said: JSON objects, and the text beside it. `ended`: it came to its end in time."""

    lines: list[dict[str, Any]] = field(default_factory=list)
    text: str = ""
    ended: bool = True
    result: str = "success"
    """systemd's word for how it ended: success, exit-code, signal, timeout, oom-kill, ..."""


def ask(
    name: str, digest: str, venv: str, paths: Paths, what: str = ALL, limit_s: float = LIMIT_S
) -> Answer:
    """Ask the engine of a staged release. Unusable without systemd, or for a release whose unit
    starts something else; Failed when systemd does not start it. `what`: as in in_venv.py."""
    if not systemctl.booted():
        raise Unusable("this machine is not run by systemd")
    release = paths.releases(name) / digest
    folder = paths.asking(name)
    shutil.rmtree(folder, ignore_errors=True)
    folder.parent.mkdir(mode=0o755, parents=True, exist_ok=True)
    # Whatever packages print, the engine's environment too: for those who can read that.
    folder.mkdir(mode=0o750)
    os.chown(folder, -1, (release / "engine.env").stat().st_gid)
    unit = UNITS / preflight_unit(name)
    try:
        program = pkgutil.get_data("sglangctl.preflight", "in_venv.py") or b""
        write_atomic(folder / "ask.py", program, 0o644)
        text = (release / "sglang.service").read_text(encoding="utf-8")
        written = derived(
            text, f"{paths.current(name)}/", f"{release}/", venv, folder, limit_s, what
        )
        write_atomic(unit, written.encode(), 0o644)
        _systemctl("daemon-reload", limit_s=60.0)
        _systemctl("start", "--", unit.name, limit_s=limit_s + 60.0)
        shown = systemctl.call("show", "--property=Result", "--value", "--", unit.name)
        return read(folder, shown.stdout.strip())
    finally:
        unit.unlink(missing_ok=True)
        systemctl.call("reset-failed", "--", unit.name)
        systemctl.call("daemon-reload", timeout_s=60)
        shutil.rmtree(folder, ignore_errors=True)


def _systemctl(*arguments: str, limit_s: float) -> command.Result:
    result = systemctl.call(*arguments, timeout_s=limit_s)
    # A start that fails is the answer of what was started.
    if result.status is None or (not result.ok and arguments[0] != "start"):
        raise Failed(f"systemctl {arguments[0]} failed: {result.stderr.strip()}")
    return result


def derived(
    unit: str,
    current: str,
    release: str,
    venv: str,
    folder: Path,
    limit_s: float,
    what: str = ALL,
) -> str:
    """The text of the unit that asks. `current` and `release`: paths that end in a slash."""
    service = unit.partition("\n[Service]\n")[2].partition("\n[")[0].replace(current, release)
    launch = f"ExecStart={venv}/bin/python -m sglang.launch_server "
    line = next((line for line in service.split("\n") if line.startswith(launch)), None)
    if line is None:
        raise Unusable("the release's unit does not start sglang.launch_server")
    kept = [
        line
        for line in service.split("\n")
        if line and not line.startswith("#") and not OURS.match(line)
    ]
    lines = [
        "# Made by sglang-provision: gone in a moment.",
        "[Service]",
        *kept,
        "Type=oneshot",
        f"ExecStart={venv}/bin/python {folder}/ask.py {what} {line[len(launch) :]}",
        f"TimeoutStartSec={limit_s:g}",
        f"TimeoutStopSec={STOP_S:g}",
        "Nice=5",
        # Whatever an engine's packages print must not fill /run.
        "LimitFSIZE=256M",
        f"StandardOutput=file:{folder}/answer",
        f"StandardError=file:{folder}/text",
    ]
    return "\n".join(lines) + "\n"


def read(folder: Path, result: str) -> Answer:
    """What lies in the folder after a run. Written by the engine's packages: it is data."""
    said = _beginning(folder / "answer").splitlines()[:MOST]
    lines = [found for found in map(json_object, said) if found]
    ended = any(line.get("step") == "end" for line in lines)
    return Answer(lines, _end(folder / "text"), ended, result or "unknown")


def _beginning(path: Path) -> str:
    try:
        with open(path, "rb") as file:
            return file.read(LARGEST).decode("utf-8", "replace")
    except FileNotFoundError:
        return ""


def _end(path: Path) -> str:
    try:
        with open(path, "rb") as file:
            file.seek(max(0, path.stat().st_size - LARGEST))
            return file.read(LARGEST).decode("utf-8", "replace")
    except FileNotFoundError:
        return ""
