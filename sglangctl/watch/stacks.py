"""Python stacks of a hung engine by py-spy, taken before it is restarted."""

from __future__ import annotations

import os
import pwd
import shutil
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from sglangctl.engine.processes import Process
from sglangctl.proc import command
from sglangctl.state.release import venv_of
from sglangctl.systemd import confined

PATIENCE_S = 10.0
"""For one process: a stopped one answers only with --nonblocking."""


@dataclass(frozen=True)
class PySpy:
    """`trusted`: root's own. One of a venv came with packages and gets no more rights than the
    engine has; where kernel.yama.ptrace_scope is not 0 it can then read nothing, and says so."""

    path: str
    trusted: bool

    def dump(self, pid: int, limit_s: float) -> str:
        """The stacks of one process, or why there are none."""
        argv = [self.path, "dump", "--nonblocking", "--pid", str(pid)]
        if self.trusted:
            result = command.run(argv, limit_s)
            return result.stdout + result.stderr
        try:
            ended = confined.run(argv, user_of(pid), limit_s=limit_s)
        except (OSError, KeyError) as error:
            return f"py-spy was not run: {error}\n"
        said = ended.stdout + ended.stderr
        return said.decode("utf-8", "backslashreplace") or f"py-spy: {ended.returncode}\n"


def user_of(pid: int) -> str:
    """The name of the user whose process it is; KeyError for root and for one without a name,
    OSError when it is gone."""
    uid = os.stat(f"/proc/{pid}").st_uid
    if uid == 0:
        raise KeyError(f"process {pid} is root's, and py-spy is not")
    return pwd.getpwuid(uid).pw_name


def py_spy(release: Path) -> PySpy | None:
    """py-spy on root's PATH, else of the release's venv; None where there is none.

    Never beside what the engine's own command line says: it can write there what it likes.
    """
    found = shutil.which("py-spy")
    if found and not in_a_venv(Path(found)):
        return PySpy(found, trusted=True)
    venv = venv_of(release / "manifest.json")
    if venv is not None and os.access(venv / "bin/py-spy", os.X_OK):
        return PySpy(str(venv / "bin/py-spy"), trusted=False)
    return None


def in_a_venv(program: Path) -> bool:
    """Whether a program belongs to a venv (which its caller has activated, say)."""
    return any((path.parents[1] / "pyvenv.cfg").exists() for path in (program, program.resolve()))


def take(folder: Path, release: Path, main_pid: int, processes: Iterable[Process]) -> list[str]:
    """Write `stacks-PID.txt` for each Python process of the engine; returns the files' names."""
    program = py_spy(release)
    if program is None:
        return []
    taken = []
    for process in processes:
        if not (process.pid == main_pid or process.is_essential):
            continue
        said = program.dump(process.pid, PATIENCE_S)
        file = folder / f"stacks-{process.pid}.txt"
        text = f"# {process.name} ({process.state})\n{said}"
        descriptor = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o640)
        with open(descriptor, "w", encoding="utf-8", errors="backslashreplace") as out:
            out.write(text)
        taken.append(file.name)
    return taken
