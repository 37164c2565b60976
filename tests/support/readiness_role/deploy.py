"""What a plan is made of; SETTLED (environment): nothing is to be done."""

from __future__ import annotations

import os

from roles.readiness.operations import reached, serving
from roles.readiness.subject import Subject
from roles.report.report import report_once

SUBJECT = Subject("kimi", "sglang-kimi.service", "kimi-k2.5", 8000, program=("/no/such/program",))


def settled() -> bool:
    return bool(os.environ.get("SETTLED"))


report_once("test")
serving(name="Readiness", subject=SUBJECT, settled=settled)
reached(name="Clients", subject=SUBJECT, settled=settled)
