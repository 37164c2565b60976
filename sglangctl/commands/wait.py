"""Return when an engine serves (0), or when its start has failed (1, with the cause).

ExecStartPost of the engine's unit, so that "active" means serving; there it ends what is left of a
start that has failed (readiness.limits.stop_starting_s). It reads the watch's verdicts on
this very run. Where no watch runs, it looks for itself and writes nothing. It ends when the main
process is gone: else the unit would stay "activating" for ever. SIGTERM (the unit is being
stopped) is a success. Exit status 2: could not wait (no such engine, nothing to read).
"""

from __future__ import annotations

import argparse
import os
import signal
import sys
from collections.abc import Sequence
from types import FrameType

from sglangctl.engine import run as runs
from sglangctl.engine.ending import end
from sglangctl.report.waiting import Waiting, failure, never_ran
from sglangctl.state.config import load_engine
from sglangctl.state.paths import Paths
from sglangctl.util.terminal import cut, escaped
from sglangctl.util.values import digits
from sglangctl.watch.logtail import WAIT_PREFIX


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("name", metavar="NAME", help="the engine")
    parser.add_argument("--pid", type=int, help="the engine's main process, where no unit runs it")


def run(args: argparse.Namespace) -> int:
    signal.signal(signal.SIGTERM, _stop_asked)
    paths = Paths()
    config = load_engine(args.name, paths)
    # systemd sets MAINPID; 0 or absent: there is none.
    pid = args.pid or digits(os.environ.get("MAINPID", ""))
    if pid:
        invocation = os.environ.get("INVOCATION_ID", "")
        found = runs.of_pid(pid) if args.pid else runs.of_control_process(pid, invocation)
    else:
        found = runs.of_unit(config.unit)
        lines = never_ran(config, paths)
        if lines is not None:
            return _ended(lines)
    if found is None:
        return _ended([f"{config.name} does not run: its main process is gone"])
    assessment = Waiting(config, paths, found).until_decided()
    status = _ended(failure(config, assessment))
    # As ExecStartPost: the verdict is certain, and systemd would wait for what is left.
    if status and pid and not args.pid and not assessment.stopped_by:
        end(found, config.limits.stop_starting_s)
    return status


def _ended(failed: Sequence[str]) -> int:
    for line in failed:
        print(WAIT_PREFIX + cut(escaped(line), 400), file=sys.stderr)
    return 1 if failed else 0


def _stop_asked(number: int, frame: FrameType | None) -> None:
    # The unit is being stopped: systemd would call a helper that dies of the signal a failure.
    os._exit(0)
