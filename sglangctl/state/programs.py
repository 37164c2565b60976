"""Versions of this program: which one runs, and deleting those that nothing uses (not the link, no
process, no unit).

A zip that is replaced or deleted under a running process breaks its next import.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

from sglangctl.proc import procfs
from sglangctl.state.paths import Paths

FROM_CHECKOUT = (
    "import sys; sys.path.insert(0, sys.argv.pop(1)); from sglangctl.cli import main; "
    "sys.exit(main(sys.argv[1:]))"
)


def again() -> list[str]:
    """How this very program is started again: by the zipapp's own path (the link may move, and
    its modules are imported through a descriptor), or from the checkout. Isolated: nothing is
    imported from the folder that one happens to be in."""
    python, origin = sys.executable or "python3", os.path.realpath(sys.argv[0])
    if origin.endswith(".pyz"):
        return [python, "-I", "-S", origin]
    return [python, "-I", "-c", FROM_CHECKOUT, str(Path(__file__).resolve().parents[2])]


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
