"""What the test asks for, by environment: OPERATION, SETTLED, REACHABLE_AT."""

from __future__ import annotations

import os
import sys
from pathlib import Path

from roles.readiness.operations import proved, reached, serving
from roles.readiness.report import report_once
from roles.readiness.subject import Subject

program = (sys.executable, str(Path(__file__).parent / "host_program.py"))
subjects = [
    Subject(
        name,
        f"sglang-{name}.service",
        "kimi-k2.5",
        reachable_at=os.environ.get("REACHABLE_AT"),
        program=("/no/such/program",) if os.environ.get("NO_PROGRAM") else program,
    )
    for name in os.environ.get("ENGINES", "kimi").split()
]


def settled() -> bool:
    return bool(os.environ.get("SETTLED"))


report_once("test")
if os.environ["OPERATION"] == "proved":
    proved(name="Verify", subjects=subjects)
else:
    serving(name="Readiness", subject=subjects[0], settled=settled, then=("switch", "--commit=abc"))
    reached(name="Clients", subject=subjects[0], settled=settled)
