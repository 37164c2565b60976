"""After a boot, for every engine: put back what ran before a switch that a power cut interrupted, or keep
the new engine where it had been proven. Starts are queued, and not waited for.

sglangctl-resume.service runs it before the engines start. Exit status: 0 done or nothing to do, 1
when an engine could not be put back (the others were).
"""

from __future__ import annotations

import argparse
import sys

from sglangctl.state.config import engine_names
from sglangctl.state.paths import Paths
from sglangctl.switch import transaction
from sglangctl.util import os_errors
from sglangctl.util.errors import Failed
from sglangctl.util.terminal import escaped


def add_arguments(parser: argparse.ArgumentParser) -> None:
    del parser  # no arguments


def run(args: argparse.Namespace) -> int:
    del args
    paths, status = Paths(), 0
    for name in engine_names(paths):
        try:
            done = transaction.at_boot(name, paths)
        except (Failed, OSError) as error:
            print(
                escaped(f"sglangctl resume: {name}: {os_errors.describe(error)}"), file=sys.stderr
            )
            status = 1
        else:
            if done:
                print(escaped(done))
    return status
