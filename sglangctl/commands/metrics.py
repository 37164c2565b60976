"""The engines of this host as metrics, for Prometheus.

On standard output, or with --textfile as a file for node_exporter's textfile collector, written whole
(`/var/lib/prometheus/node-exporter/sglang.prom` on Debian). A timer or cron job calls it.

Exit status: 0, 2 when the configuration cannot be read or the file cannot be written.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from sglangctl.holders import survey
from sglangctl.report import metrics, status
from sglangctl.state.config import readable
from sglangctl.state.files import write_atomic
from sglangctl.state.paths import Paths
from sglangctl.util import os_errors
from sglangctl.util.terminal import escaped


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--textfile", type=Path, metavar="FILE", help="write it there, at once")


def run(args: argparse.Namespace) -> int:
    paths = Paths()
    host, engines, troubles = readable(paths)
    samples = []
    for engine in engines:
        try:
            samples += metrics.of_engine(engine, status.look(engine, paths, closer=False), paths)
        except OSError as error:
            troubles.append(f"{engine.name}: {os_errors.sentence(error)}")
    first = engines[0] if engines else None
    samples += metrics.of_holders(survey.find(first, host, engines[1:]))
    for trouble in troubles:
        print(f"sglangctl metrics: {escaped(trouble)}", file=sys.stderr)
    text = metrics.text(samples)
    if args.textfile is None:
        sys.stdout.write(text)
    else:
        write_atomic(args.textfile, text.encode(), 0o644)
    return 2 if troubles else 0
