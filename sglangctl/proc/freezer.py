"""The cgroup freezer, v1 and v2: a frozen process dies only once it is thawed (v1)."""

from __future__ import annotations

from collections.abc import Container
from pathlib import Path

from sglangctl.proc import cgroup, procfs


def frozen(pid: int) -> bool:
    """Whether the freezer holds this process, in its own cgroup or one above."""
    return bool(_frozen_folders(pid))


def thaw(pid: int, killed: Container[int]) -> bool:
    """Thaw the cgroups that hold it, where all that would go on was `killed` (was sent SIGKILL
    just now, and so runs nowhere again). Whether there was one."""
    found = False
    for file in _frozen_folders(pid):
        if not all(member in killed for member in cgroup.pids_in(file.parent)):
            continue
        try:
            file.write_text("0" if file.name == "cgroup.freeze" else "THAWED", encoding="ascii")
            found = True
        except OSError:
            continue  # `frozen` tells the operator
    return found


def _frozen_folders(pid: int) -> list[Path]:
    found, root = [], cgroup.CGROUP
    for line in (procfs.read_text(pid, "cgroup") or "").splitlines():
        _, _, rest = line.partition(":")
        controllers, _, path = rest.partition(":")
        if "freezer" in controllers.split(","):
            bases, name, sign = [root / "freezer"], "freezer.state", "FR"
        elif not controllers:
            bases, name, sign = [root, root / "unified"], "cgroup.freeze", "1"
        else:
            continue
        for base in bases:
            folder = base / path.lstrip("/")
            while folder != base and base in folder.parents:
                file = folder / name
                try:
                    if file.read_text(encoding="ascii").startswith(sign):
                        found.append(file)
                except OSError:
                    pass  # another layout, or the cgroup is gone
                folder = folder.parent
    return found
