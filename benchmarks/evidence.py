"""Where the figures of the benchmarks are kept: docs/evidence/<name>.json, one document each.

{"v": 1, "benchmark", "date", "commit", "machine": {"cores", "kernel", "python"}, "load", ...}: `load` is
the machine's load average over a minute when the figures were taken; the rest is the benchmark's.
"""

from __future__ import annotations

import json
import os
import platform
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
OPTION = "--evidence"
"""Among a benchmark's arguments: keep the figures. Without it they are only printed."""


def asked(arguments: list[str]) -> bool:
    """Whether the figures are to be kept; takes the option out of the arguments."""
    if OPTION not in arguments:
        return False
    arguments.remove(OPTION)
    return True


def keep(name: str, figures: dict[str, Any], wanted: bool) -> None:
    """Print the figures as JSON and, where `wanted`, write docs/evidence/<name>.json."""
    done = subprocess.run(
        ["git", "-C", str(ROOT), "rev-parse", "HEAD"], capture_output=True, text=True, check=False
    )
    document = {
        "v": 1,
        "benchmark": name,
        "date": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        "commit": done.stdout.strip() or None,
        "machine": {
            "cores": os.cpu_count(),
            "kernel": platform.release(),
            "python": platform.python_version(),
        },
        "load": round(os.getloadavg()[0], 2),
        **figures,
    }
    text = json.dumps(document, indent=1)
    print(text)
    if wanted:
        path = ROOT / "docs/evidence" / f"{name}.json"
        path.write_text(text + "\n", encoding="utf-8")
        print(f"kept in {path}", file=sys.stderr)
