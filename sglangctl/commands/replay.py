"""Judge a recorded journal again: one JSON object a line, at the first event and on every
change of phase, outcome or cause (t, phase, outcome, cause, progress, eta_s, evidence).

Exit status: 0 when the last outcome is serving, ready or degraded, 1 for any other, 2 when
the file cannot be read or holds no event.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from sglangctl.diagnosis.outcomes import SERVED
from sglangctl.startup.assessment import Assessment
from sglangctl.startup.replay import changes
from sglangctl.state import journal
from sglangctl.util.errors import Unusable


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The arguments of `sglangctl replay`."""
    parser.add_argument("file", metavar="FILE", help="a journal.jsonl, or - for standard input")


def line(assessment: Assessment) -> str:
    """The JSON object of one assessment, as replay prints it."""
    document: dict[str, Any] = {
        "t": assessment.t,
        "phase": assessment.phase,
        "outcome": assessment.outcome,
        "cause": assessment.cause,
        "progress": assessment.progress,
        "eta_s": assessment.eta_s,
        "evidence": list(assessment.evidence),
    }
    return json.dumps(document)


def run(args: argparse.Namespace) -> int:
    """Print the changes; the exit status says how it ended."""
    outcome = ""
    try:
        if args.file == "-":
            events: Iterable[journal.Event] = journal.events(sys.stdin.buffer)
        else:
            events = journal.read(Path(args.file))
        for assessment in changes(events):
            print(line(assessment), flush=True)
            outcome = assessment.outcome
    except OSError as error:
        error.filename = error.filename or args.file
        raise
    if not outcome:
        raise Unusable(f"{args.file} is not a journal: it contains no event")
    return 0 if outcome in SERVED else 1
