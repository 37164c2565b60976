"""Watch an engine and write its journal: every start of its unit, and what comes after.

Runs for as long as the host does (sglang-watch@NAME.service): a new folder under `starts` for
each run of the unit. Without systemd it watches one process group: `--pid PID`, or a command of
its own, `sglangctl watch NAME -- COMMAND ...`, whose output it puts into the log; then it ends
when that process does. An engine without a file in /etc/sglangctl needs --port and --model.

A unit's watch also writes the engine's metrics every 30 s, where Debian's node_exporter has its folder
for them (/var/lib/prometheus/node-exporter).

Exit status: 0; with --pid 1 when the last word was not good; with a command that command's own
(128 + n after signal n); 2 when it cannot watch.
"""

from __future__ import annotations

import argparse
import os
import pwd
import signal
from pathlib import Path

from sglangctl.report.textfile import Writer
from sglangctl.state.config import ConfigError, EngineConfig, load_engine
from sglangctl.state.paths import Paths, checked_name
from sglangctl.watch import lock as watch_lock
from sglangctl.watch.service import Watch
from sglangctl.watch.start_folder import prepare

TAKES_COMMAND = True
"""What follows `--` is args.command."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("name", metavar="NAME", help="the engine")
    parser.add_argument("--pid", type=int, help="watch this process and its group, not a unit")
    parser.add_argument("--log", type=Path, metavar="FILE", help="the engine's log file")
    parser.add_argument("--port", type=int, help="for an engine that is not in /etc/sglangctl")
    parser.add_argument("--model", help="likewise: its path, or the served name")
    parser.usage = "sglangctl watch NAME [options] [-- COMMAND ...]"


def run(args: argparse.Namespace) -> int:
    paths = Paths()
    config = _config(args, paths)
    lock = watch_lock.acquire(prepare(config, paths))
    watch = Watch(config, paths, args.log or paths.engine_log(config.name))
    signal.signal(signal.SIGTERM, watch.stop)
    signal.signal(signal.SIGINT, watch.stop)
    try:
        if args.command:
            return watch.command(args.command)
        if args.pid is not None:
            return watch.process(args.pid)
        metrics = Writer(config.name, paths)
        metrics.start()
        try:
            return watch.unit()
        finally:
            metrics.stop()
    finally:
        lock.close()


def _config(args: argparse.Namespace, paths: Paths) -> EngineConfig:
    """The engine's file; without one what the arguments say."""
    try:
        return load_engine(args.name, paths)
    except ConfigError:
        if args.port is None or args.model is None or paths.engine_json(args.name).exists():
            raise
    return EngineConfig(
        name=checked_name(args.name),
        unit="",
        user=pwd.getpwuid(os.getuid()).pw_name,
        port=args.port,
        listen="0.0.0.0",
        model=args.model,
        served_name=args.model,
    )
