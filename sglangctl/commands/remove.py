"""Stop an engine and take away what was put on this host for it: never weights, never what others
put there, and of what engines share only what no other engine needs.

Exit status: 0 gone (also when it was), 1 not, 2 its configuration cannot be read.
Interrupted, it goes on when it is called again.
"""

from __future__ import annotations

import argparse
import sys

from sglangctl.state.config import ConfigError
from sglangctl.state.lock import Busy
from sglangctl.state.paths import Paths
from sglangctl.state.release import ReleaseError
from sglangctl.state.switch_error import SwitchError
from sglangctl.switch.remove import remove
from sglangctl.util import os_errors


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("name", help="the engine's name")


def run(args: argparse.Namespace) -> int:
    paths = Paths()
    try:
        remove(args.name, paths, lambda line: print(line, flush=True))
    except (Busy, ConfigError, ReleaseError, SwitchError, OSError, ValueError) as error:
        print(f"sglangctl remove: {os_errors.words(error)}", file=sys.stderr)
        return 2 if isinstance(error, ConfigError) else 1
    return 0
