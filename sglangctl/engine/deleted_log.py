"""An engine whose log was deleted under it: it goes on writing, into a file without a name."""

from __future__ import annotations

import os
from pathlib import Path


def still_written(main_pid: int, log: Path) -> Path | None:
    """Where the deleted `log` can be read while the engine runs; None: it was not deleted, or that
    cannot be told."""
    output = f"/proc/{main_pid}/fd/1"
    try:
        target = os.readlink(output)
    except OSError:
        return None
    return Path(output) if main_pid and target == f"{log} (deleted)" else None


def sentence(log: Path, unit: str) -> str:
    return (
        f"{log} was deleted while the engine runs: it writes to the deleted file until its next start "
        f"(systemctl restart {unit}); sglangctl logs shows that"
    )
