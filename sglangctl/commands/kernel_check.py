"""Import torch and sgl_kernel in the engine's environment and run one operation on the GPU.

Exit status: 0 it works, 1 it does not (cause and next step are named), 2 it was not run (no GPU,
or no memory left on it).

What is imported is code of others, so it runs with the rights of the engine's user, or of --user.
"""

from __future__ import annotations

import argparse
import os

from sglangctl.sgl_kernel import common
from sglangctl.sgl_kernel.library import check, inspect, stamp
from sglangctl.sgl_kernel.library.translations import OK
from sglangctl.state.config import load_engine
from sglangctl.state.paths import Paths
from sglangctl.util import os_errors
from sglangctl.util.errors import Unusable
from sglangctl.util.terminal import escaped


def add_arguments(parser: argparse.ArgumentParser) -> None:
    common.add_venv(parser)
    parser.add_argument(
        "--user", help="as whom it runs (default: the engine's with --engine, else nobody)"
    )
    parser.add_argument("--remember", action="store_true", help="for the next survey")
    parser.add_argument(
        "--accept-no-gpu", action="store_true", help="remember it without a GPU, too"
    )
    parser.add_argument("--json", action="store_true", help="the whole document")


def run(args: argparse.Namespace) -> int:
    venv = common.chosen_venv(args)
    # Only what the kernel says of itself is needed here: no cubins are read.
    seen = inspect.inspect_installed(venv, None, None, everything=False)
    user = user_of(args)
    try:
        result = check.check(venv, seen, user=user)
    except KeyError:
        raise Unusable(f"there is no user {user} on this host: name another with --user") from None
    # Not run for want of a GPU is not to be remembered where a GPU is meant to be.
    if args.remember and (result.stage != "no-gpu" or args.accept_no_gpu):
        try:
            stamp.write(venv, result)
        except OSError as error:
            raise Unusable(f"the outcome cannot be kept: {os_errors.sentence(error)}") from None
    print(common.document(result) if args.json else "\n".join(table(result)))
    return result.exit_status


def user_of(args: argparse.Namespace) -> str | None:
    """Root runs nothing of an environment with its own rights, unless it is told to."""
    if args.user or os.geteuid() != 0:
        return str(args.user) if args.user else None
    return load_engine(args.engine, Paths()).user if args.engine else "nobody"


def table(result: check.Check) -> list[str]:
    """The result for people."""
    lines = [f"{result.outcome}: {result.reason}"]
    if result.cause:
        lines.append(f"  cause: {result.cause}; next: {result.next_step}")
    elif result.next_step:
        lines.append(f"  next: {result.next_step}")
    if result.outcome != OK:
        lines += [f"  | {line}" for line in result.evidence]
    return [escaped(line) for line in lines]
