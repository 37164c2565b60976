"""What a kernel holds and whether it fits: a wheel file, a folder, or `installed`.

Exit status: 0 usable, 1 not usable (the verdict says why), 2 could not tell.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from sglangctl.sgl_kernel import common
from sglangctl.sgl_kernel.library import cubins, inspect
from sglangctl.sgl_kernel.library.judging import Inspection
from sglangctl.util.errors import Unusable
from sglangctl.util.terminal import escaped


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("target", help="WHEEL, DIR (with sgl_kernel/ in it) or `installed`")
    common.add_sm(parser)
    common.add_venv(parser)
    parser.add_argument("--json", action="store_true", help="the whole document")
    parser.add_argument(
        "--fetch-tools", action="store_true", help=f"get cuobjdump from PyPI ({cubins.PACKAGE})"
    )
    parser.add_argument("--pip-argument", action="append", default=[], help="of --fetch-tools")


def run(args: argparse.Namespace) -> int:
    result = _inspect(args)
    print(common.document(result) if args.json else "\n".join(table(result)))
    return result.exit_status


def table(result: Inspection) -> list[str]:
    """The inspection for people."""
    name = f"{result.distribution} {result.version}" if result.distribution else result.target
    lines = [f"{result.verdict}: {name}: {result.reason}"]
    facts = {
        "target": result.target,
        "wants torch": result.torch_pin,
        "torch here": result.torch,
        "CUDA": result.cuda,
        "Python": result.python,
        "loaded": result.loads,
    }
    lines += [f"  {key:<12} {value}" for key, value in facts.items() if value is not None]
    for item in result.files:
        archs = "not looked at" if item.archs is None else cubins.show(item.archs)
        ptx = f"; PTX {cubins.show(item.ptx)}" if item.ptx else ""
        lines.append(
            f"  {item.bytes / 2**20:8.1f} MiB  {item.path}  {item.fault or f'sm {archs}{ptx}'}"
        )
    lines += [f"  not known: {text}" for text in result.unknown]
    return [escaped(line) for line in lines]


def _inspect(args: argparse.Namespace) -> Inspection:
    sm = common.chosen_sm(args.sm)
    cuobjdump = cubins.find_cuobjdump()
    if cuobjdump is None and args.fetch_tools:
        python = _python_with_pip(args)
        cuobjdump = cubins.fetch_cuobjdump(python, pip_arguments=args.pip_argument)
    if args.target == "installed":
        return inspect.inspect_installed(common.chosen_venv(args), sm, cuobjdump)
    venv = common.chosen_venv(args) if args.venv or args.engine else None
    target = Path(args.target)
    if target.is_dir():
        return inspect.inspect_folder(target.resolve(), sm, cuobjdump, venv)
    if not target.exists():
        raise Unusable(f"{args.target} does not exist")
    return inspect.inspect_wheel(target, sm, cuobjdump, venv)


def _python_with_pip(args: argparse.Namespace) -> str:
    if args.venv or args.engine:
        return str(common.chosen_venv(args).python)
    return sys.executable or "python3"
