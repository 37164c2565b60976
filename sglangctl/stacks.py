"""Python stacks of a hung engine by py-spy, taken before it is restarted."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterable
from pathlib import Path

from sglangctl import procfs, systemd
from sglangctl.processes import Process

PATIENCE_S = 10.0
"""For one process: a stopped one answers only with --nonblocking."""


def py_spy(main_pid: int) -> str | None:
    """py-spy beside the engine's own Python, else on PATH; None where there is none.

    SGLang itself looks on PATH alone, where a venv's is not.
    """
    try:
        python = os.readlink(f"{procfs.PROC}/{main_pid}/exe")
    except OSError:
        python = ""
    argv = procfs.cmdline(main_pid)
    for program in (python, argv[0] if argv else ""):
        beside = Path(program).parent / "py-spy"
        if program.startswith("/") and os.access(beside, os.X_OK):
            return str(beside)
    return shutil.which("py-spy")


def take(folder: Path, main_pid: int, processes: Iterable[Process], mode: int = 0o640) -> list[str]:
    """Write `stacks-PID.txt` for each Python process of the engine; returns the files' names."""
    program = py_spy(main_pid)
    if program is None:
        return []
    taken = []
    for process in processes:
        if not (process.pid == main_pid or process.is_essential):
            continue
        result = systemd.run(
            [program, "dump", "--nonblocking", "--pid", str(process.pid)], PATIENCE_S
        )
        file = folder / f"stacks-{process.pid}.txt"
        text = f"# {process.name} ({process.state})\n{result.stdout}{result.stderr}"
        descriptor = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, mode)
        with open(descriptor, "w", encoding="utf-8", errors="backslashreplace") as out:
            out.write(text)
        taken.append(file.name)
    return taken
