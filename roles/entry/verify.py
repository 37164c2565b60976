"""sglang-verify: ask every engine of the inventory for the proof that it serves.

Runs deploys/verify.py and adds the exit status that pyinfra does not have: 0 all are ready (or
degraded, where that is accepted), 1 one is not, 2 none is known to be not ready and one could not
be checked (unreachable, not deployed, a mistake in the inventory). Takes pyinfra's own options
(--limit HOST, -v, ...).
"""

from __future__ import annotations

import json
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from roles.entry.project import environment, pyinfra
from roles.report.report import FOLDER_VARIABLE


def main() -> int:
    """The console script."""
    return run(sys.argv[1:])


def run(arguments: Sequence[str]) -> int:
    """Run pyinfra, which prints what it finds; returns the exit status."""
    if list(arguments[:1]) in (["-h"], ["--help"]):
        print(__doc__)
        return 0
    with tempfile.TemporaryDirectory(prefix="sglang-verify-") as folder:
        done = pyinfra("verify", "-y", *arguments, env=environment(**{FOLDER_VARIABLE: folder}))
        reports = sorted(Path(folder).glob("*/report.json"))
        document = json.loads(reports[-1].read_text(encoding="utf-8")) if reports else None
    status, sentence = judge(done.returncode, document)
    print(f"sglang-verify: {sentence}", file=sys.stderr)
    return status


def judge(returncode: int, document: dict[str, Any] | None) -> tuple[int, str]:
    """(exit status, one sentence) from pyinfra's exit status and the run's report."""
    if document is None:
        return 2, "nothing could be checked, see the errors above"
    exits: dict[str, int] = {}
    for host in document["report"]:
        for engine in host["engines"]:
            status = engine["exit"]
            if status == 0 and engine["reachable"] is False:
                status = 1
            exits[f"{engine['engine']} on {host['host']}"] = status
        if host["outcome"] != "ok" and all(engine["exit"] == 0 for engine in host["engines"]):
            exits.setdefault(host["host"], 2)
    for status, word in ((1, "not ready"), (2, "could not be checked")):
        found = [name for name, exit_status in exits.items() if exit_status == status]
        if found:
            return status, f"{word}: {', '.join(found)}"
    if returncode != 0 or not exits:
        return 2, "nothing could be checked, see the errors above"
    return 0, f"ready: {', '.join(exits)}"
