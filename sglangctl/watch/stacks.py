"""Python stacks of a hung engine by py-spy, taken before it is restarted."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterable
from pathlib import Path

from sglangctl.engine.processes import Process
from sglangctl.proc import command
from sglangctl.state.release import venv_of

PATIENCE_S = 10.0
"""For one process: a stopped one answers only with --nonblocking."""


def py_spy(release: Path) -> str | None:
    """py-spy of the release's venv, else on root's PATH; None where there is none.

    Never beside what the engine's own command line says: it can write there what it likes, and
    this runs as root.
    """
    venv = venv_of(release / "manifest.json")
    if venv is not None and os.access(venv / "bin/py-spy", os.X_OK):
        return str(venv / "bin/py-spy")
    return shutil.which("py-spy")


def take(folder: Path, release: Path, main_pid: int, processes: Iterable[Process]) -> list[str]:
    """Write `stacks-PID.txt` for each Python process of the engine; returns the files' names."""
    program = py_spy(release)
    if program is None:
        return []
    taken = []
    for process in processes:
        if not (process.pid == main_pid or process.is_essential):
            continue
        result = command.run(
            [program, "dump", "--nonblocking", "--pid", str(process.pid)], PATIENCE_S
        )
        file = folder / f"stacks-{process.pid}.txt"
        text = f"# {process.name} ({process.state})\n{result.stdout}{result.stderr}"
        descriptor = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o640)
        with open(descriptor, "w", encoding="utf-8", errors="backslashreplace") as out:
            out.write(text)
        taken.append(file.name)
    return taken
