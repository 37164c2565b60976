"""One tar.gz of evidence about an engine: journals, log, unit, environment and flags, versions,
GPUs, the kernel's log lines on GPU faults and memory, stacks. What is or looks like a secret
is masked. MANIFEST.json inside says how much of which kind in which file, and which parts could not
be read. Look through it before you publish it: a secret that looks like a word is not found, and
paths, model names, addresses and the engine's log lines stay in.

Exit status: 0 written, 1 could not be written, 2 no such engine, or not allowed to read what must
be masked.
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path

from sglangctl.masking.masker import Masker
from sglangctl.report.bundle import write
from sglangctl.report.bundle_parts import parts, secrets_of_process
from sglangctl.state.config import require_known
from sglangctl.state.paths import Paths
from sglangctl.state.release import all_secrets
from sglangctl.state.slots import live_unit
from sglangctl.util import os_errors
from sglangctl.util.errors import Failed
from sglangctl.util.terminal import escaped


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("name", metavar="NAME", help="the engine")
    parser.add_argument(
        "-o", "--output", metavar="FILE", help="where to write it (default: here, NAME-<time>)"
    )


def run(args: argparse.Namespace) -> int:
    paths = Paths()
    now = time.strftime("%Y%m%dT%H%M%SZ", time.gmtime())
    name = args.name
    target = Path(args.output or f"{name}-{now}.tar.gz")
    require_known(name, paths)
    masker = Masker([*all_secrets(name, paths), *secrets_of_process(live_unit(name, paths))])
    wanted = list(parts(name, paths))
    try:
        written = write(target, name, now, iter(wanted), masker)
    except OSError as error:
        raise Failed(cannot_write(target, error)) from None
    print(f"{target} ({target.stat().st_size // 1024 + 1} KiB)")
    for part, reason in written.missing.items():
        print(f"  without {part}: {escaped(reason)}")
    for part, kinds in written.masked.items():
        print(f"  masked in {part}: " + ", ".join(f"{n} {kind}" for kind, n in kinds.items()))
    print(f"look through it before you publish it: tar -xOzf {target} | less")
    return 0


def cannot_write(target: Path, error: OSError) -> str:
    """Why there is no bundle, and where else to put it."""
    folder = target.parent
    if not folder.is_dir():
        return f"{target} cannot be written: there is no folder {folder}; name another with -o"
    if target.is_dir():
        return f"{target} is a folder: name a file with -o"
    if error.filename is None:
        error.filename = str(target)
    return f"{os_errors.sentence(error)}, or name another place with -o"
