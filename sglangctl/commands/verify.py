"""Prove that an engine serves, with a generation of our own.

What is looked at: the process that listens on the port is this engine's and of this start, /health
is 200, the served model is ours, every rank is alive, one generation is sane text, and with a
drafter its accept length over our own prompts.

Exit status: 0 ready (or degraded, unless the inventory says `readiness.degraded: fail`), 1 not
ready, 2 could not check.
"""

from __future__ import annotations

import argparse
import json
from dataclasses import asdict
from typing import Any

from sglangctl.report.verify import Report, could_not_check, verify
from sglangctl.state.config import VERSION, ConfigError, load_engine
from sglangctl.state.paths import Paths
from sglangctl.util import os_errors
from sglangctl.util.terminal import escaped


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("name", metavar="NAME", help="the engine")
    parser.add_argument("--json", action="store_true", help="one JSON document")
    parser.add_argument("--pid", type=int, help="the engine's main process, where no unit runs it")


def run(args: argparse.Namespace) -> int:
    paths = Paths()
    try:
        config = load_engine(args.name, paths)
        report = verify(config, paths, args.pid, quiet=args.json)
    except ConfigError as error:
        report = could_not_check(args.name, str(error))
    except OSError as error:
        report = could_not_check(args.name, os_errors.sentence(error))
    if args.json:
        print(json.dumps({"v": VERSION, "verify": asdict(report)}))
    else:
        print(as_text(report))
    return report.status


def as_text(report: Report) -> str:
    """For a terminal; what the engine said is escaped."""
    width = max((len(check.name) for check in report.checks), default=0)
    marks: dict[Any, str] = {True: "ok", False: "NOT OK", None: "?"}
    lines = [report.sentence]
    lines += [
        f"  {check.name:<{width}}  {marks[check.passed]:<6}  {check.detail}"
        for check in report.checks
    ]
    if report.text:
        lines.append(f"  it said: {report.text[:200]}")
    return "\n".join(escaped(line) for line in lines)
