"""Install a kernel wheel into an engine's environment, and remove the leftovers of other kernels.

Takes a wheel file, a key of this host's cache, or `stock` (from the package index). The wheel is
inspected for this GPU and environment before anything is changed, and the kernel checked after it.

Exit status: 0 installed and usable, 1 not (the reason is named), 2 could not be done.
"""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path

from sglangctl.sgl_kernel import common
from sglangctl.sgl_kernel.venv import Venv
from sglangctl.state.paths import Paths
from sglangctl.util.errors import Unusable
from sglangctl.util.terminal import escaped


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("wheel", help="WHEEL, KEY or `stock`")
    parser.add_argument("--distribution", help="with `stock`: default as the engine wants it")
    parser.add_argument("--version", help="with `stock`: default the newest that fits")
    parser.add_argument("--pip-argument", action="append", default=[], help="for pip download")
    common.add_sm(parser)
    common.add_venv(parser)


def run(args: argparse.Namespace) -> int:
    from sglangctl.sgl_kernel.library import cubins, inspect, install
    from sglangctl.sgl_kernel.library.judging import USABLE

    paths = Paths()
    venv = common.chosen_venv(args)
    sm = common.chosen_sm(args.sm)
    program = cubins.find_cuobjdump(paths) or cubins.fetch_cuobjdump(
        str(venv.python), paths, args.pip_argument
    )
    paths.kernel_cache.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=paths.kernel_cache, prefix=".install-") as folder:
        wheel = _wheel(args, venv, Path(folder), paths)
        seen = inspect.inspect_wheel(wheel, sm, program, venv, everything=False)
        if seen.verdict != USABLE:
            print(escaped(f"{wheel.name}: {seen.verdict}: {seen.reason}"))
            return seen.exit_status
        done = install.install(venv, wheel)
    after = inspect.inspect_installed(venv, sm, program, everything=False)
    for name in done.removed:
        print(escaped(f"removed {name}"))
    print(escaped(f"installed {done.wheel}: {after.verdict}: {after.reason}"))
    return after.exit_status


def _wheel(args: argparse.Namespace, venv: Venv, folder: Path, paths: Paths) -> Path:
    from sglangctl.sgl_kernel import cache
    from sglangctl.sgl_kernel.key import is_key
    from sglangctl.sgl_kernel.library import install

    if args.wheel == "stock":
        wanted = venv.required_kernel()
        name = args.distribution or (wanted[0] if wanted else "sglang-kernel")
        return install.fetch_stock(venv, name, args.version, folder, args.pip_argument)
    if is_key(args.wheel):
        entry = cache.find(args.wheel, paths)
        if entry is None:
            raise Unusable(f"{args.wheel} is not in this host's cache, or its wheel is damaged")
        return entry.wheel
    if not Path(args.wheel).is_file():
        raise Unusable(f"{args.wheel} does not exist")
    return Path(args.wheel)
