"""A host's sglangctl: its real journal command; `verify` and `switch` answer as the test says.

CASE (environment) is a JSON document: {"unit": the fields of a poll's `=` line or null, "verify": what
`sglangctl verify --json` prints, "errors": its stderr}. Calls are appended to CALLS.
"""

from __future__ import annotations

import json
import os
import sys
import time

from sglangctl import cli
from sglangctl.state import follow
from tests.support.units import unit, watch

case = json.loads(os.environ["CASE"])
with open(os.environ["CALLS"], "a") as calls:
    calls.write(" ".join(sys.argv[1:]) + "\n")
if sys.argv[1] == "journal":
    fields = dict(case["unit"] or {})
    seen = (watch(fields.pop("watch")), unit(**fields))[::-1] if fields else None
    follow.with_watch = lambda name, unit_name: seen
    sys.exit(cli.main(sys.argv[1:]))
if sys.argv[1] == "verify":
    time.sleep(case.get("slow", 0))
    document = case["verify"][sys.argv[2]]
    print(json.dumps(document) if isinstance(document, dict) else document)
    print(case.get("errors", ""), file=sys.stderr)
    sys.exit(document["verify"]["status"] if isinstance(document, dict) else 1)
sys.exit(case.get("switch", 0))
