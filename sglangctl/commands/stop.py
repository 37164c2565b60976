"""Stop an engine, end what is left of it, and keep it down: also after a reboot.

The next deploy starts it again. Exit status: 0 stopped (also when it was), 1 not, 2 no such engine
or no readable configuration, 3 refused: systemd does not answer (nothing was changed).
"""

from __future__ import annotations

import argparse
from functools import partial

from sglangctl.state.config import load_engine
from sglangctl.state.lock import locked
from sglangctl.state.paths import Paths
from sglangctl.switch.stop import end_switch, stop


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("name", help="the engine's name")


def run(args: argparse.Namespace) -> int:
    paths = Paths()
    engine = load_engine(args.name, paths)
    say = partial(print, flush=True)
    end_switch(engine.name, paths, say)
    with locked(paths, engine.name, f"stop of {engine.name}"):
        stop(engine, paths, say)
    return 0
