"""Inspect, check, build and install the kernel (sgl-kernel, sglang-kernel).

sglangctl kernel inspect installed --sm 120   what is in it, and whether it fits this GPU
sglangctl kernel check                        run one operation of it
sglangctl kernel build --follow KEY           a build that a deploy has started
sglangctl kernel locks                        locks that a killed JIT compiler left behind
"""

from __future__ import annotations

import argparse
import importlib
from types import ModuleType

SUBCOMMANDS = {
    "inspect": "what a wheel, folder or installed kernel holds: 0 usable",
    "check": "import it and run one operation: 0 ok, 1 failed, 2 not run",
    "build": "build one from source, in a unit of its own",
    "install": "install a wheel, other kernels' leftovers taken away",
    "locks": "locks that a killed JIT compiler left behind (--clean removes them)",
    "survey": "what a deploy wants to know, as one document",
}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    commands = parser.add_subparsers(dest="subcommand", required=True, metavar="COMMAND")
    for name, summary in SUBCOMMANDS.items():
        loaded = _module(name)
        child = commands.add_parser(
            name,
            help=summary,
            description=loaded.__doc__,
            formatter_class=argparse.RawDescriptionHelpFormatter,
        )
        loaded.add_arguments(child)


def run(args: argparse.Namespace) -> int:
    return int(_module(args.subcommand).run(args))


def _module(name: str) -> ModuleType:
    return importlib.import_module(f"sglangctl.commands.kernel_{name}")
