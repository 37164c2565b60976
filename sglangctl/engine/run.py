"""One run of an engine: which one it is, when it began, its processes."""

from __future__ import annotations

import os
import time
from dataclasses import dataclass
from pathlib import Path

from sglangctl.engine import processes
from sglangctl.proc import cgroup, procfs
from sglangctl.systemd.unit import find


@dataclass(frozen=True)
class Run:
    """`launched`: of the main process, on time.monotonic(). `folder`: its cgroup's, if it has one
    of its own; else its process group is what belongs together."""

    id: str
    main_pid: int
    launched: float
    folder: Path | None = None

    def pids(self) -> list[int]:
        """The processes that are there now."""
        if self.folder is not None:
            return cgroup.pids_in(self.folder)
        return processes.in_group_of(self.main_pid)

    def t(self) -> float:
        """Seconds since the launch."""
        return time.monotonic() - self.launched


def of_unit(name: str) -> Run | None:
    """The run that the unit has now; None when there is none, or not yet a main process."""
    found = find(name)
    if found is None or not found.invocation_id or found.started is None:
        return None
    pid = found.main_pid or (found.last_main_pid if found.exited else 0)
    if not pid:
        return None
    return Run(found.invocation_id, pid, found.started, found.folder)


def of_pid(pid: int, run_id: str | None = None) -> Run | None:
    """The run of a process that no unit has; None when it is gone."""
    stat, age = procfs.stat(pid), procfs.age_s(pid)
    if stat is None or age is None:
        return None
    return Run(run_id or f"pid{pid}-{stat.start}", pid, time.monotonic() - age)


def of_control_process(main_pid: int, invocation_id: str) -> Run:
    """The run whose ExecStartPost this process is: its cgroup is our own.

    A main process that is gone already was started just before us.
    """
    age = procfs.age_s(main_pid) or 0.0
    path = cgroup.path_of(procfs.read_text(os.getpid(), "cgroup") or "")
    # A root cgroup holds everybody's processes: then the group is all there is to go by.
    folder = cgroup.folder_of_unit(path) if path and path.strip("/") else None
    return Run(invocation_id, main_pid, time.monotonic() - age, folder)
