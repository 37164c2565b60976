"""The build as a transient unit: with low priority, and independent of the SSH link.

Without systemd (a container, Slurm) it is a process of its own session, with the same body and the
same lock, and without the limits of a cgroup: kept, because a build of an hour must outlive the
link there too.
"""

from __future__ import annotations

import fcntl
import os
import subprocess
from collections.abc import Sequence
from pathlib import Path

from sglangctl.proc import command, membership, memory, procfs
from sglangctl.sgl_kernel.build import jobs
from sglangctl.sgl_kernel.build.record import JOURNAL, BuildError
from sglangctl.sgl_kernel.build.request import Request, folder
from sglangctl.state import follow, lock, programs
from sglangctl.state.journal import Event
from sglangctl.state.paths import Paths
from sglangctl.systemd import systemctl
from sglangctl.systemd.unit import find
from sglangctl.systemd.unit_names import build_unit

PID = "pid"
ASIDE = {"CPUWeight": "20", "IOWeight": "20", "Nice": "10", "IOSchedulingClass": "idle"}
"""Out of the way of the engine."""


def start(request: Request, paths: Paths) -> str:
    """Start the build unless it is running; returns `started` or `running`."""
    root = folder(request.key, paths)
    root.mkdir(parents=True, exist_ok=True)
    # Two deploys at once: one starts it, and the other finds it running.
    with open(lock.private(root / "starting"), "r+", encoding="utf-8") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        if running(request.key, paths):
            return "running"
        # Or who follows would take the end of the run before for the end of this one.
        (root / JOURNAL).unlink(missing_ok=True)
        argv = [*programs.again(), "kernel", "build", "--run", request.key]
        if not systemctl.booted():
            _start_session(argv, root)
            return "started"
        # It returns when the program runs (Type=exec): from then on the unit is active.
        done = command.run(["systemd-run", *properties(request), "--", *argv], timeout_s=120)
        if not done.ok and not running(request.key, paths):
            raise BuildError(
                f"systemd-run does not start the build: {done.stderr.strip()}",
                f"systemctl status {build_unit(request.key)}",
            )
        return "started" if done.ok else "running"


def properties(request: Request) -> Sequence[str]:
    """The options of systemd-run."""
    options = [
        f"--unit={build_unit(request.key)}",
        f"--description=sgl-kernel build {request.key}",
        "--collect",
        "--quiet",
    ]
    if os.environ.get("SGLANGCTL_ROOT"):
        options.append(f"--setenv=SGLANGCTL_ROOT={os.environ['SGLANGCTL_ROOT']}")
    values = {
        "Type": "exec",
        **ASIDE,
        # After the work's own limit, which says what happened.
        "RuntimeMaxSec": str(request.runtime_max_s + 300),
        "KillMode": "control-group",
        "TimeoutStopSec": "10",
        "PrivateTmp": "no",
        "UMask": "0022",
    }
    return options + [f"--property={name}={value}" for name, value in values.items()]


def limits(key: str) -> list[str]:
    """Properties of the unit in which the build user works: it ends with the build's own."""
    have = jobs.room(memory.available_mib(), memory.cgroup_room_mib())
    values = {
        **ASIDE,
        "OOMScoreAdjust": "500",
        "MemoryMax": f"{jobs.memory_max(have)}M",
        "MemorySwapMax": "0",  # or a build over its limit grinds on the disk instead of ending
        # Default is `stop`: one compiler that is killed would end the whole build.
        "OOMPolicy": "continue",
        "TimeoutStopSec": "10",
    }
    if membership.of(os.getpid(), membership.own_root()).unit == build_unit(key):
        values.update(BindsTo=build_unit(key), After=build_unit(key))
    return [f"{name}={value}" for name, value in values.items()]


def running(key: str, paths: Paths) -> bool:
    """Whether the build of this key runs on this host."""
    if systemctl.booted():
        found = find(build_unit(key))
        return found is not None and found.running
    try:
        text = (folder(key, paths) / PID).read_text()
        pid, start_ticks = (int(word) for word in text.split())
    except (OSError, ValueError):
        return False
    stat = procfs.stat(pid)
    return stat is not None and stat.start == start_ticks and stat.state not in procfs.DEAD


def look_at(key: str, offset: int, paths: Paths) -> follow.Answer:
    """What is new in the journal of a build from byte `offset` on, and whether it has ended."""
    file = folder(key, paths) / JOURNAL
    return follow.look_at_task(key, file, offset, lambda: running(key, paths), exit_status)


def exit_status(event: Event) -> int | None:
    """Of the last event of a build; None for any other."""
    if event.get("step") != "end":
        return None
    return 0 if event.get("outcome") == "built" else 1


def _start_session(argv: list[str], root: Path) -> None:
    process = subprocess.Popen(
        ["nice", "-n", "10", *argv],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    stat = procfs.stat(process.pid)
    if stat:
        (root / PID).write_text(f"{process.pid} {stat.start}\n")
