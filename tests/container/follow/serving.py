"""Waits for the engine `tiny` as deploys/sglang.py does, or asks for its proof."""

from __future__ import annotations

import os

from roles.readiness.operations import proved, reached, serving
from roles.readiness.subject import Subject
from roles.report.report import report_once

SUBJECT = Subject(
    "tiny", "sglang-tiny.service", "tiny", 8000, reachable_at=os.environ.get("TEST_REACHABLE_AT")
)

report_once("serving")
if os.environ.get("TEST_PROVED"):
    proved(name="Verify", subjects=[SUBJECT])
else:
    serving(name="Readiness of tiny", subject=SUBJECT, settled=lambda: False)
    reached(name="Clients reach tiny", subject=SUBJECT, settled=lambda: False)
