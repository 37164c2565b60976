"""Delete versions of this program that nothing uses: not the link, no process, no unit.

A zip that is replaced or deleted under a running process breaks its next import.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from sglangctl import procfs
from sglangctl.paths import Paths


def add_arguments(parser: argparse.ArgumentParser) -> None:
    del parser  # no arguments


def run(args: argparse.Namespace) -> int:
    del args
    for path in prune(Paths()):
        print(f"removed {path}")
    return 0


def prune(paths: Paths) -> list[Path]:
    """Returns what was deleted."""
    versions = sorted(paths.programs.glob("*.pyz"))
    used = {str(paths.program_link.resolve())}
    for pid in procfs.pids():
        used.update(procfs.cmdline(pid))
    for unit in paths.units.glob("sglang*.service"):
        try:
            text = unit.read_text(encoding="utf-8", errors="replace")
        except OSError:
            continue  # a dangling link
        used.update(str(path) for path in versions if str(path) in text)
    gone = [path for path in versions if str(path) not in used]
    for path in gone:
        path.unlink()
    return gone
