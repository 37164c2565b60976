"""Stop an engine, end what is left of it, and keep it down: also after a reboot.

The next deploy starts it again. Exit status: 0 stopped (also when it was), 1 not, 2 no such engine
or no readable configuration.
"""

from __future__ import annotations

import argparse
import sys

from sglangctl.state.config import ConfigError, load_engine
from sglangctl.state.lock import Busy, locked
from sglangctl.state.paths import Paths
from sglangctl.state.release import ReleaseError
from sglangctl.state.switch_error import SwitchError
from sglangctl.switch.stop import stop
from sglangctl.util import os_errors


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("name", help="the engine's name")


def run(args: argparse.Namespace) -> int:
    paths = Paths()
    try:
        engine = load_engine(args.name, paths)
        with locked(paths, engine.name, f"stop of {engine.name}"):
            stop(engine, paths, lambda line: print(line, flush=True))
    except (Busy, ConfigError, ReleaseError, SwitchError, OSError) as error:
        print(f"sglangctl stop: {os_errors.words(error)}", file=sys.stderr)
        return 2 if isinstance(error, ConfigError) else 1
    return 0
