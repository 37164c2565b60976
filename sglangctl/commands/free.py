"""Free an engine's GPUs: a plan that can be read first, steps with limits, and a proof.

Policies: `declared` (default) may end only what the inventory replaces; `engines` also other
inference engines; `all` also anything else. Protected processes and other engines of the inventory
are never ended; the engine itself only with --stop. If a process that may not be ended uses the
GPUs, nothing is changed, and the option that would allow it is shown.

Exit status: 0 free (or nothing to do), 1 not free (the last line says why and what next), 2 no such
engine or no readable configuration, 3 refused (nothing was changed).
With --json: {"v": 1, "free": {"plan": {...}, "result": {...} or null}}.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from typing import Any, Callable

from sglangctl import free
from sglangctl.free.model import FreeResult, Plan
from sglangctl.state.config import load_engine, load_host, siblings_of
from sglangctl.state.journal import Writer
from sglangctl.state.lock import locked
from sglangctl.state.paths import Paths
from sglangctl.util import os_errors
from sglangctl.util.errors import Failed

KEPT = 20
"""Journals of runs that are kept, an engine."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("name", help="the engine's name")
    parser.add_argument("--dry-run", action="store_true", help="show the plan, change nothing")
    parser.add_argument(
        "--policy", choices=free.POLICIES, default="declared", help="what may be ended (see above)"
    )
    action = parser.add_mutually_exclusive_group()
    action.add_argument("--stop", action="store_true", help="stop the engine itself as well")
    action.add_argument(
        "--replaced",
        action="store_true",
        help="only stop and disable what the inventory replaces; the engine keeps running",
    )
    parser.add_argument("--json", action="store_true", help="one document at the end")


def run(args: argparse.Namespace) -> int:
    paths = Paths()
    engine, host = load_engine(args.name, paths), load_host(paths)
    if args.replaced:
        engine = replace(engine, gpus=())  # whoever is on its GPUs is in nobody's way
    siblings = siblings_of(engine.name, paths)

    def planned() -> Plan:
        return free.plan(engine, host, siblings, policy=args.policy, stop=args.stop)

    if args.dry_run:
        plan = planned()
        if args.json:
            _document(plan, None)
        else:
            print("\n".join(free.plan_lines(plan)))
        return 3 if plan.refused else 0
    say = _quiet if args.json else _print
    # Not while a switch does the same. Without root nothing is ended, and /run is not ours.
    what = f"freeing of {args.name}'s GPUs"
    with locked(paths, args.name, what) if is_root() else nullcontext():
        return carry_out(args, planned(), say, paths)


def carry_out(
    args: argparse.Namespace, plan: Plan, say: Callable[[str], None], paths: Paths
) -> int:
    with journal(args.name, paths) as emit:
        if not plan.refused:
            for line in free.plan_lines(plan):
                say(line)
        result = free.execute(plan, say, emit)
    if args.json:
        _document(plan, result)
    elif not result.ok:
        raise Failed(result.sentence, result.status)
    return result.status


def is_root() -> bool:
    return os.geteuid() == 0


@contextmanager
def journal(name: str, paths: Paths) -> Iterator[Callable[..., Any] | None]:
    """The events of one run go to frees/<UTC time>.jsonl in the engine's folder; None where we may
    not write there (then nothing can be ended either)."""
    folder = paths.engine_state(name) / "frees"
    try:
        folder.mkdir(mode=0o755, parents=True, exist_ok=True)
        for old in sorted(folder.glob("*.jsonl"))[: -KEPT + 1]:
            old.unlink()
        stamp = time.strftime("%Y%m%dT%H%M%SZ", time.gmtime())
        writer = Writer(folder / f"{stamp}-{os.getpid()}.jsonl", mode=0o600)
    except OSError as error:
        _no_journal(error)
        yield None
        return
    began = time.monotonic()

    lost: list[OSError] = []

    def emit(kind: str, **facts: Any) -> None:
        # A full disk must not keep anybody from freeing GPUs.
        try:
            writer.write(time.monotonic() - began, kind, **facts)
        except OSError as error:
            if not lost:
                _no_journal(error)
            lost.append(error)

    try:
        yield emit
    finally:
        writer.close()


def _no_journal(error: OSError) -> None:
    print(f"sglangctl free: no journal of this run: {os_errors.sentence(error)}", file=sys.stderr)


def _document(plan: Plan, result: FreeResult | None) -> None:
    inner = {
        "plan": free.plan_document(plan),
        "result": None if result is None else result.to_json(),
    }
    print(json.dumps({"v": 1, "free": inner}))


def _print(line: str) -> None:
    print(line, flush=True)


def _quiet(_line: str) -> None:
    """With --json only the document is printed; the steps are in the journal."""
