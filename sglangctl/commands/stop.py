"""Stop an engine, end what is left of it, and keep it down: also after a reboot.

The next deploy starts it again. An engine whose configuration is gone is stopped by its units alone.
Exit status: 0 stopped (also when it was), 1 not, 2 no such engine or no readable configuration, 3
refused: systemd does not answer, or the unit is not ours and no such engine is configured (nothing
was changed).
"""

from __future__ import annotations

import argparse
from functools import partial

from sglangctl.state.config import load_engine
from sglangctl.state.lock import locked
from sglangctl.state.paths import Paths, checked_name
from sglangctl.state.slots import live_unit
from sglangctl.switch.step import lines
from sglangctl.switch.stop import end_switch, stop, unconfigured_steps


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("name", help="the engine's name")


def run(args: argparse.Namespace) -> int:
    paths = Paths()
    name = checked_name(args.name)
    by_units = [] if paths.engine_json(name).exists() else unconfigured_steps(name, paths)
    engine = None if lines(by_units) else load_engine(name, paths)
    say = partial(print, flush=True)
    end_switch(name, paths, say)
    with locked(paths, name, f"stop of {name}"):
        if engine is not None:
            stop(engine, paths, say)
            return 0
        for step in by_units:
            step.do(say)
        say(f"{live_unit(name, paths)} is stopped and disabled")
    return 0
